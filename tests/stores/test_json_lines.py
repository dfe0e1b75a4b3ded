"""JSON lines: objects or bare lists; errors name the line."""

import json

import pytest

from isoscope import InputError
from isoscope.stores.open import open_store
from isoscope.stores.write import write_store


def lines(tmp_path, text, name="a.jsonl"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def read(path, **asked):
    return [row for chunk in open_store(path, **asked).chunks() for row in chunk.tolist()]


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2]\n[3, 4]\n",
        '{"v": [1, 2]}\n\n{"v": [3.0, 4e0]}',
        '\ufeff{"text": "a", "embedding": [1, 2], "ids": [5, 6, 7]}\r\n{"embedding": [3, 4]}\r\n',
        '{"text": ["a", "b"], "v": [1, 2]}\n{"v": [3, 4], "v2": 1}\n',
        '{"a": {"v": [9, 9]}, "v": [1, 2]}\n{"v": [3, 4], "a": "\\"v\\": [7, 7]"}\n',
        '{"v": [1, 2], "a": [[5], []]}\n{"a": "]", "v" : [ 3 ,4]}\n',
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.json"])
def test_accepted_line_formats(text, name, tmp_path):
    assert read(lines(tmp_path, text, name)) == [[1, 2], [3, 4]]


def test_booleans_are_not_numbers(tmp_path):
    with pytest.raises(InputError, match=r"a\.jsonl, line 2: true in the vector is not a number"):
        read(lines(tmp_path, "[1, 2]\n[true, 2]\n"))
    with pytest.raises(InputError, match=r"a\.jsonl, line 1: need a list of numbers"):
        read(lines(tmp_path, "[true, false]\n[1, 2]\n"))


def test_an_empty_list_is_a_missing_vector(tmp_path):
    path = lines(tmp_path, '{"v": [1, 2]}\n{"v": []}\n{"v": [3, 4]}\n')
    assert [row for row in read(path, missing="drop") if row[0] == row[0]] == [[1, 2], [3, 4]]


def test_columns_are_the_single_values(tmp_path):
    path = lines(
        tmp_path, '{"v": [1], "label": 2, "text": "é\\n", "topic": null}\n{"v": [2], "label": 3, "text": null}\n'
    )
    store = open_store(path)
    assert store.labels.tolist() == [2, 3]
    assert store.text.tolist() == ["é\n", ""]
    with pytest.raises(InputError, match="topic is empty in 2 of 2 rows, first in row 0"):
        _ = open_store(path, labels="topic").labels
    with pytest.raises(InputError, match="label contains both numbers and text"):
        _ = open_store(lines(tmp_path, '{"v": [1], "label": 2}\n{"v": [2], "label": "x"}\n')).labels


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]\n[3]\n", "line 2: the vector has 1 number: need 2, as in the first line"),
        ("[1, 2]\n\n[3, null]\n", "line 3: null in the vector is not a number"),
        ('[1, 2]\n[3, "x"]\n', 'line 2: "x" in the vector is not a number'),
        ("[1, 2]\n[3, [4]]\n", r"line 2: \[4\] in the vector is not a number"),
        ('{"v": [1]}\n{"v": [1], "x": \n', "line 2 is not JSON"),
        ("[1, 2]\n[3, 4] x\n", "line 2 is not JSON"),
        ("[1, 2]\n7\n", "line 2: 7 is not a list of numbers"),
        ('{"v": [1]}\n{"w": [1]}\n', 'line 2: the field "v" is missing: fill it in, or drop'),
        ('{"v": [1]}\n{"v": null}\n', 'line 2: the field "v" is missing'),
        ('{"v": [1]}\n[1]\n', 'line 2: the field "v" is missing'),
        ('{"v": [1]}\n{"v": [1}\n', "line 2 is not JSON: .* at column 9"),
        ('{"v": [1]}\n{"v": "x"}\n', 'line 2: "x" is not a list of numbers'),
        ('{"text": "x"}\n', "contains no vectors; its columns are text"),
        ('{"p": [1], "q": [2]}\n', "several columns of vectors: p, q"),
        ('"x"\n', "line 1: need a list of numbers, or an object that contains one"),
        ("[]\n", "line 1: need a list of numbers"),
        ("[" * 100_000 + "\n", "line 1 .*JSON"),
    ],
)
def test_malformed_lines_raise(text, message, tmp_path):
    with pytest.raises(InputError, match=rf"a\.jsonl.*{message}"):
        read(lines(tmp_path, text))


def test_all_digits_are_preserved(tmp_path):
    numbers = [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -0.0, 123456789.123456789]
    text = json.dumps({"v": numbers})
    assert read(lines(tmp_path, text)) == [numbers]
    assert read(lines(tmp_path, text.replace("0.1", "NaN")))[0][1:] == numbers[1:]


def test_key_can_be_chosen_and_bare_lists_have_no_key(tmp_path):
    assert read(lines(tmp_path, '{"p": [1], "q": [2]}\n'), vectors="q") == [[2]]
    with pytest.raises(InputError, match="contains bare lists"):
        read(lines(tmp_path, "[1, 2]\n"), vectors="q")


@pytest.mark.parametrize("text", ["[\n  [1, 2],\n  [3, 4]\n]\n", "[[1, 2], [3, 4]]", '{\n "v": [1]\n}'])
def test_a_single_json_value_is_rejected_with_advice(text, tmp_path):
    with pytest.raises(InputError, match=r"a\.json is a single JSON value: .*jq -c '\.\[\]' a\.json > a\.jsonl"):
        read(lines(tmp_path, text, "a.json"))


def test_lone_surrogates_become_escapes(tmp_path):
    text = '{"v": [1], "text": "a\\ud800b", "label": "\\udfff", "id": "x\\ud83d"}\n'
    text += '{"v": [2], "text": "\\ud83d\\ude00", "label": "é", "id": "y"}\n'
    store = open_store(lines(tmp_path, text))
    assert store.text.tolist() == ["a\\ud800b", "😀"]
    assert store.labels.tolist() == ["\\udfff", "é"]
    assert store.ids.tolist() == ["x\\ud83d", "y"]
    write_store(store, tmp_path / "a.parquet")
    assert open_store(tmp_path / "a.parquet").text.tolist() == ["a\\ud800b", "😀"]
