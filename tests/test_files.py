"""Files are written whole or not at all, and JSON comes back as it was."""

import json
import math
import os

import pytest
from hypothesis import given, strategies as st

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import ROOT, read_json, write_atomically, write_json, write_text

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
# Text that looks like what stands around it in a JSON file.
TEXTS = st.text('[]{}"\\,:. \n19e-NaIτ', max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_json_comes_back_as_it_was(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "value.json"
    write_json(path, value)
    assert repr(json.loads(path.read_text(encoding="utf-8"))) == repr(value)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_json_is_read_as_utf_8_with_or_without_a_mark(tmp_path, mark):
    (tmp_path / "value.json").write_bytes((mark + '{"name": "für-dich"}').encode("utf-8"))
    assert read_json(tmp_path / "value.json") == {"name": "für-dich"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("[1,   2]", '"[1,   2]"'),
        ('"[1,\n 2]', r'"\"[1,\n 2]"'),
        ([1, [2.5, -3e-07]], "[ 1, [ 2.5, -3e-07 ] ]"),
        (["NaN", "-Infinity"], '[\n "NaN",\n "-Infinity"\n]'),
        ([1.0, math.nan], "[\n 1.0,\n null\n]"),
        ({"a": []}, '{\n "a": []\n}'),
    ],
)
def test_lists_of_numbers_stand_on_a_line_and_strings_stay(tmp_path, value, text):
    write_json(tmp_path / "value.json", value)
    assert (tmp_path / "value.json").read_bytes() == f"{text}\n".encode()


@pytest.mark.parametrize("number", [math.inf, -math.inf])
def test_an_infinite_number_is_refused_and_the_file_stays(tmp_path, number):
    path = tmp_path / "value.json"
    path.write_text("as it was")
    with pytest.raises(DSparkLiteError, match="value.json.*infinite"):
        write_json(path, {"text": "Infinity", "number": [number]})
    assert path.read_text() == "as it was"


@pytest.mark.parametrize("name", ["bench.json", "lessons.json", "confidence/scheduler.json"])
def test_a_stored_measurement_written_again_is_the_same_file(tmp_path, name):
    stored = ROOT / "assets" / "measurements" / name
    write_json(tmp_path / "again.json", json.loads(stored.read_text(encoding="utf-8")))
    assert (tmp_path / "again.json").read_bytes() == stored.read_bytes()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("disk full")])
def test_an_error_leaves_the_old_file_and_no_other(tmp_path, error):
    def fail(path):
        path.write_text("half")
        raise error

    (tmp_path / "file").write_text("whole")
    with pytest.raises(type(error)):
        write_atomically(tmp_path / "file", fail)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "whole"}


def test_another_process_may_write_the_same_file_meanwhile(tmp_path, monkeypatch):
    def write(temporary):
        temporary.write_text("first")
        monkeypatch.setattr(os, "getpid", lambda: 0)
        write_text(tmp_path / "file", "second")

    write_atomically(tmp_path / "file", write)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "first"}


def test_a_text_has_the_same_bytes_on_every_system(tmp_path):
    write_text(tmp_path / "file", "a\nb\r\nτ\n")
    assert (tmp_path / "file").read_bytes() == "a\nb\r\nτ\n".encode()
