"""The web edition: `make site` builds it, `make test-site` opens every page in a browser."""
