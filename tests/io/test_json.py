import json
import os

import numpy as np
import pytest

from isoscope._core.errors import FileFormatError, InputError
from isoscope._io.json import jsonable, parse_json, read_json, write_json

SCHEMA = "isoscope.test/1"


def test_jsonable_gives_plain_values():
    value = {1: np.float32(0.5), "a": (np.int64(2), np.nan, np.inf), "b": np.arange(2), "c": [None, True, "x"]}
    plain = {"1": 0.5, "a": [2, None, None], "b": [0, 1], "c": [None, True, "x"]}
    assert jsonable(value) == plain
    assert json.loads(json.dumps(jsonable(value))) == plain


def test_a_written_file_is_read_back(tmp_path):
    path = tmp_path / "a.json"
    write_json({"schema": SCHEMA, "name": "ü"}, path)
    assert read_json(path, SCHEMA, "isoscope test") == {"schema": SCHEMA, "name": "ü"}
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"schema": "isoscope.other/1"}', "[" * 100_000])
def test_other_files_raise(text, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=r"a\.json"):
        read_json(path, SCHEMA, "isoscope test")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("NaN", "NaN is not a JSON number"),
        ("[-Infinity]", "-Infinity is not"),
        ("[1e999]", "1e999 is not"),
        ("9" * 301, "99… is too large"),
        (r'"\ud800"', "surrogates"),
        ("[" * 100_000, "nested too deeply"),
        ("[" * 300 + "]" * 300, "nested too deeply"),
        ("[1,]", "Expecting value|Illegal trailing comma"),
    ],
)
def test_values_that_isoscope_never_writes_are_rejected(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        parse_json(text)


def test_extreme_numbers_and_characters_are_read():
    text = '[1e308, 5e-324, -0.0, 18446744073709551616, "\\ud83d\\ude00", "é"]'
    assert parse_json(text) == [1e308, 5e-324, 0.0, 2**64, "😀", "é"]


def test_a_missing_file_raises(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.json"):
        read_json(tmp_path / "nothing.json", SCHEMA, "isoscope test")
