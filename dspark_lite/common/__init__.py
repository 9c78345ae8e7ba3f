"""The ground floor: errors, names, files, clocks, intervals, numbers in words, and the paper's numbers."""

from .supported import check_versions

check_versions()  # every import of dspark_lite begins here, before one of an old library fails in its own words
