"""The ground floor: errors, files, clocks, versions, fingerprints."""

from .supported import check_versions

check_versions()  # every import of dspark_lite comes here first, before an old library can fail
