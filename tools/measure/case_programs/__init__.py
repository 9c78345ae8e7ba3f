"""The programs of the cases in assets/cases: with the fault of each suspect, without any, and how they are measured."""

from .case_00 import case_00
from .case_02 import case_02
from .case_03 import case_03
from .case_07 import case_07
from .case_11 import case_11
from .case_13 import case_13
from .cases_01_12 import case_01, case_12
from .cases_04_05_06 import case_04, case_05, case_06
from .cases_09_10 import case_09, case_10

CASES = {
    "00": case_00,
    "01": case_01,
    "02": case_02,
    "03": case_03,
    "04": case_04,
    "05": case_05,
    "06": case_06,
    "07": case_07,
    "09": case_09,
    "10": case_10,
    "11": case_11,
    "12": case_12,
    "13": case_13,
}
