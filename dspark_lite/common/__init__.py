"""The ground floor: errors, files, clocks, versions, fingerprints."""

from .supported import check_versions

check_versions()  # every import of dspark_lite begins here, before one of an old library fails in its own words
