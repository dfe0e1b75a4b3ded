"""Relevance judgments and graded pairs from files; errors name the line."""

from __future__ import annotations

import csv
import json

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from isoscope import InputError
from isoscope._core.errors import MissingValueError
from isoscope.advising.judgments import read_pairs, read_qrels

GRADES = np.arange(24) % 5 / 2
PAIRS = [(f"a{i}", f"b {i}", grade) for i, grade in enumerate(GRADES)]


def written(tmp_path, text, name="q.tsv"):
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
    return path


# qrels

TREC = ["q1 0 d1 2", "q1 0 d2 0", "q2 0 d1 -1", "q2 0 d3 1"]
BEIR = ["q1 d1 2", "q1 d2 0", "q2 d1 -1", "q2 d3 1"]
MEANT = {"q1": {"d1": 2.0, "d2": 0.0}, "q2": {"d1": -1.0, "d3": 1.0}}


@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("split", ["\t", " "])
@pytest.mark.parametrize(
    "lines", [TREC, BEIR, ["query-id corpus-id score", *BEIR], ["qid iter docid rel", *TREC]], ids=str
)
def test_all_qrels_formats_are_equivalent(tmp_path, lines, split, end, bom):
    text = bom + end.join(line.replace(" ", split) for line in lines) + end
    assert read_qrels(written(tmp_path, text)) == MEANT


def test_ids_may_contain_spaces_between_tabs(tmp_path):
    assert read_qrels(written(tmp_path, "query-id\tcorpus-id\tscore\nq 1\td 1\t1\n")) == {"q 1": {"d 1": 1.0}}


def test_dict_with_any_keys():
    assert read_qrels({1: {2: True, "x": 0.5}}) == {"1": {"2": 1.0, "x": 0.5}}


@pytest.mark.parametrize("empty", ["", "\n\n", "query-id\tcorpus-id\tscore\n"])
def test_a_file_without_judgments_is_rejected(tmp_path, empty):
    with pytest.raises(InputError, match="no judgments"):
        read_qrels(written(tmp_path, empty))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("q1 0 d1 1\nq1 0 d2 high\n", "line 2: the relevance is 'high'"),
        ("q1 0 d1 1\n\nq1 d2\n", "line 3 has 2 columns"),
        ("q1 0 d1 1 x\n", "line 1 has 5 columns"),
        (b"q1 0 d1 1\nq\xff 0 d2 1\n", "not valid UTF-8"),
    ],
)
def test_errors_in_qrels_name_the_line(tmp_path, text, words):
    with pytest.raises(InputError, match=words):
        read_qrels(written(tmp_path, text))


def test_missing_file_raises(tmp_path):
    for read in (read_qrels, read_pairs):
        with pytest.raises(InputError, match="does not exist"):
            read(tmp_path / "none.tsv")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"q": "d"}, "maps the query 'q' to a str"),
        ({"q": {"d": "high"}}, "query 'q', is 'high': need a number"),
        ({"q": {"d": None}}, "query 'q', is missing"),
        ([("q", "d")], "need a file, {query"),
        (5, "qrels is a int"),
        ({"text": ["a"], "page": [1], "query": ["q"], "year": [1], "x": [2]}, None),
    ],
)
def test_other_objects_are_rejected_as_qrels(source, words):
    if words is None:  # a dict of lists whose keys are not the columns of a table: documents by query
        assert read_qrels(source)["page"] == {"1": 1.0}
        return
    with pytest.raises(InputError, match=words):
        read_qrels(source)


def test_qrels_from_lists_and_tables():
    rows = [("q1", "d1", 2), ("q1", "d2", 0), ("q2", "d1", -1), ("q2", "d3", 1)]
    queries, documents, relevances = (list(column) for column in zip(*rows, strict=True))
    columns = {"corpus-id": documents, "query-id": queries, "note": ["x"] * 4, "score": relevances}
    frames = [pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns), datasets.Dataset.from_dict(columns)]
    for source in [rows, (queries, documents, relevances), columns, *frames]:
        assert read_qrels(source) == MEANT
    assert read_qrels({"q1": ["d1", "d2"], "q2": {"d3"}}) == {"q1": {"d1": 1.0, "d2": 1.0}, "q2": {"d3": 1.0}}
    numbers = pd.DataFrame({"query_id": [1.0, 2.0], "doc_id": [10, 11], "relevance": [1, 1]})
    assert read_qrels(numbers) == {"1": {"10": 1.0}, "2": {"11": 1.0}}


def test_missing_judgments_can_be_dropped(tmp_path):
    path = written(tmp_path, "q1\td1\t1\nq1\td2\t\nq2\td1\tnan\nq2\td3\t1\n")
    with pytest.raises(
        MissingValueError, match=r"line 2: the relevance is missing .2 judgments are incomplete.: .*--missing drop"
    ):
        read_qrels(path)
    assert read_qrels(path, "drop") == {"q1": {"d1": 1.0}, "q2": {"d3": 1.0}}
    assert read_qrels(path, "drop").dropped == 2
    assert read_qrels({"q": {"d": None, "e": 1}}, "drop") == {"q": {"e": 1.0}}


@pytest.mark.parametrize("value", ["inf", "nan"])
def test_relevance_must_be_finite(tmp_path, value):
    with pytest.raises(InputError):
        read_qrels(written(tmp_path, f"q1 d1 1\nq1 d2 {value}\n"))
    with pytest.raises(InputError):
        read_qrels({"q1": {"d1": float(value)}})


# pairs


def lines_of(pairs, split="\t"):
    return [split.join(map(str, pair)) for pair in pairs]


def assert_meant(found):
    assert found.first == [a for a, _, _ in PAIRS]
    assert found.second == [b for _, b, _ in PAIRS]
    np.testing.assert_array_equal(found.scores, GRADES)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "head", ["", "id1\tid2\tscore", "Sentence1\tSentence2\tSimilarity", "one\tother\tvalue", "\ufeff"]
)
def test_tab_separated_pairs(tmp_path, head, end):
    lines = lines_of(PAIRS)
    lines = [head, *lines] if head.strip("\ufeff") else [head + lines[0], *lines[1:]]
    assert_meant(read_pairs(written(tmp_path, end.join(lines) + end + end)))


def test_named_columns_may_be_in_any_order(tmp_path):
    text = "\n".join(["split\tscore\tid2\tid1", *(f"dev\t{g}\t{b}\t{a}" for a, b, g in PAIRS)])
    assert_meant(read_pairs(written(tmp_path, text)))


def test_comma_separated_pairs_with_quotes(tmp_path):
    path = tmp_path / "p.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["sentence1", "sentence2", "score"])
        writer.writerows((f'{a}, "so"\nthey say', b, g) for a, b, g in PAIRS)
    found = read_pairs(path)
    assert found.first == [f'{a}, "so"\nthey say' for a, _, _ in PAIRS]
    np.testing.assert_array_equal(found.scores, GRADES)


def test_json_lines_pairs(tmp_path):
    text = "\n".join(json.dumps({"score": g, "id1": a, "id2": b, "split": 1}) for a, b, g in PAIRS)
    assert_meant(read_pairs(written(tmp_path, text, "p.jsonl")))


def test_parquet_pairs(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    first, second, grade = (list(column) for column in zip(*PAIRS, strict=True))
    pq.write_table(pa.table({"label": grade, "a": first, "b": second}), tmp_path / "p.parquet")
    assert_meant(read_pairs(tmp_path / "p.parquet"))
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_pairs(tmp_path / "broken.parquet")


def test_three_sequences_as_pairs():
    first, second, grade = zip(*PAIRS, strict=True)
    assert_meant(read_pairs((first, list(second), np.asarray(grade))))
    numbers = read_pairs((np.arange(24), np.arange(24)[::-1], GRADES))
    assert numbers.first[:2] == ["0", "1"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        (
            "\n".join([*lines_of(PAIRS), "a text\twith a tab\tin it\t3"]),
            "line 25 has 4 columns, but the first line has 3",
        ),
        ("\n".join(lines_of(PAIRS[:19])), "has 19 pairs: need at least 20"),
        ("\n".join(f"{a}\t{b}\t1" for a, b, _ in PAIRS), "every pair the same score, 1"),
        ("\n".join([*lines_of(PAIRS), "a\tb\tnan"]), "the score of pair 24 is not finite"),
        ("\n".join([*lines_of(PAIRS), "a\tb\thigh"]), "the score of pair 24 is 'high'"),
        ("\n".join(["x\ty\tz\tw", *(f"{a}\t{b}\t{g}\t1" for a, b, g in PAIRS)]), "the columns x, y, z, w"),
        ("\n".join(f"{a}\t{g}" for a, _, g in PAIRS), "2 columns without names"),
    ],
)
def test_errors_in_pairs_are_one_line(tmp_path, text, words):
    with pytest.raises(InputError, match=words) as error:
        read_pairs(written(tmp_path, text))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "[1]\n", '{"id1": 1}\n{"id2": 2}\n', "{"])
def test_invalid_json_lines_are_rejected(tmp_path, text):
    with pytest.raises(InputError):
        read_pairs(written(tmp_path, text, "p.jsonl"))


@pytest.mark.parametrize("source", [5, ([1], [2]), None, ["abc"], {"x": [1]}, pd.DataFrame({"x": [1]})])
def test_other_objects_are_rejected_as_pairs(source):
    with pytest.raises(InputError, match=r"need a table or a file with three columns"):
        read_pairs(source)


def test_sequences_of_different_lengths_raise():
    with pytest.raises(InputError, match="has 3, 2 and 3 entries"):
        read_pairs(([1, 2, 3], [1, 2], [1, 2, 3]))


def test_three_numbers_are_rejected():
    with pytest.raises(InputError):
        read_pairs((1, 2, 3))


def test_pairs_from_lists_and_tables():
    first, second, scores = (list(column) for column in zip(*PAIRS, strict=True))
    columns = {"score": scores, "genre": ["news"] * 24, "sentence1": first, "sentence2": second}
    frames = [pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns), datasets.Dataset.from_dict(columns)]
    for source in [PAIRS, [list(pair) for pair in PAIRS], columns, *frames]:
        assert_meant(read_pairs(source))
    numbers = np.column_stack([np.arange(24), np.arange(24)[::-1], GRADES])
    assert read_pairs(numbers).second[:2] == ["23", "22"]


def test_missing_pairs_can_be_dropped(tmp_path):
    rows = [*PAIRS, ("a", "b", None), (None, "b", 1.0), ("a", float("nan"), 1.0), ("a", "b", float("inf"))]
    with pytest.raises(MissingValueError, match=r"score of pair 24 is missing .4 judgments are incomplete"):
        read_pairs(rows)
    found = read_pairs(rows, "drop")
    assert_meant(found)
    assert found.dropped == 4
    path = written(tmp_path, "\n".join([*lines_of(PAIRS), "a\tb\t", "a\tb\tnan"]))
    assert_meant(read_pairs(path, "drop"))
    lines = [json.dumps({"id1": a, "id2": b, "score": score}) for a, b, score in [*PAIRS, ("a", "b", None)]]
    assert_meant(read_pairs(written(tmp_path, "\n".join(lines), "p.jsonl"), "drop"))


@pytest.mark.parametrize("mark", ["\u2028", "\x85"])
@pytest.mark.parametrize("name", ["p.tsv", "p.jsonl", "p.csv"])
def test_only_newlines_end_a_line(tmp_path, mark, name):
    texts = [f"{a}{mark}." for a, _, _ in PAIRS]
    rows = [(text, b, grade) for text, (_, b, grade) in zip(texts, PAIRS, strict=True)]
    lines = lines_of(rows, "," if name == "p.csv" else "\t")
    if name == "p.jsonl":
        lines = [json.dumps({"id1": a, "id2": b, "score": g}, ensure_ascii=False) for a, b, g in rows]
    assert read_pairs(written(tmp_path, "\n".join(lines), name)).first == texts


def test_line_numbers_count_empty_lines(tmp_path):
    with pytest.raises(InputError, match="line 27 has 4 columns"):
        read_pairs(written(tmp_path, "\n".join(["id1\tid2\tscore", "", *lines_of(PAIRS), "a\tb\tc\t3"])))
