"""Columns are chosen by name, and their values are checked."""

import numpy as np
import pytest

from isoscope import InputError
from isoscope._core.errors import plural
from isoscope.stores.columns import (
    ColumnSpec,
    choose_columns,
    choose_dimensions,
    choose_vectors,
    have_common_pattern,
    plain_values,
)

NAN = float("nan")


@pytest.mark.parametrize(
    ("candidates", "said", "expected"),
    [
        (["odd"], None, "odd"),
        (["odd", "embedding"], None, "embedding"),
        (["Vector", "b"], None, "Vector"),
        (["test", "train", "distances"], None, "train"),
        (["group/b", "group/emb"], None, "group/emb"),
        (["a", "embedding"], "a", "a"),
    ],
)
def test_vector_column_is_detected(candidates, said, expected):
    assert choose_vectors(candidates, ColumnSpec(said), "f") == expected


@pytest.mark.parametrize(
    ("candidates", "others", "said", "message"),
    [
        (
            ["p", "q"],
            [],
            None,
            r'f has several columns of vectors: p, q; choose one with vectors="p" .*--columns vectors=p',
        ),
        (["p"], [], "z", "f has no column named z; choose from p"),
        (["p"], ["z"], "z", "column z does not contain vectors"),
        ([], ["text", "id"], None, "f contains no vectors; its columns are text, id: need a column"),
    ],
)
def test_ambiguous_or_missing_vector_columns_raise(candidates, others, said, message):
    with pytest.raises(InputError, match=message):
        choose_vectors(candidates, ColumnSpec(said), "f", others=others)


def test_roles_have_usual_names_and_requested_names_take_precedence():
    available = ["Topic", "label", "sentence", "token", "other"]
    assert choose_columns(available, ColumnSpec(), "f") == {"labels": "label", "types": "token", "text": "sentence"}
    wanted = ColumnSpec(None, {"labels": "other", "text": np.zeros(3)})
    assert choose_columns(available, wanted, "f") == {"labels": "other", "types": "token"}
    with pytest.raises(
        InputError, match="f has no column nope for types: the columns are Topic, label, sentence, token"
    ):
        choose_columns(available, ColumnSpec(None, {"types": "nope"}), "f")
    with pytest.raises(InputError, match="f has no column nope for types: it contains only vectors"):
        choose_columns([], ColumnSpec(None, {"types": "nope"}), "f")


@pytest.mark.parametrize(
    "name", ["id", "_id", "ids", "Doc_ID", "docid", "uuid", "key", "query_id", "query-id", "corpus-id"]
)
def test_ids_have_usual_names_and_are_not_dimensions(name):
    assert choose_columns(["other", name], ColumnSpec(), "f") == {"ids": name}
    assert choose_columns([name, "other"], ColumnSpec(None, {"ids": "other"}), "f") == {"ids": "other"}
    assert choose_dimensions([name, "0", "1"], ColumnSpec()) == ["0", "1"]


def test_ids_are_integers_or_strings():
    for values, expected in (([3, 4], [3, 4]), (["a", "007"], ["a", "007"]), (np.array([1.0, 2.0]), [1, 2])):
        found, missing = plain_values(values, "ids")
        assert (found.tolist(), missing) == (expected, None)
        assert found.dtype.kind in "iO"
    for values in ([0.5], [1e300], [-np.inf]):
        with pytest.raises(InputError, match=r"ids contains .*: ids must be integers or strings"):
            plain_values(values, "ids")
    assert plain_values([1, None], "ids")[1].tolist() == [False, True]


def test_a_column_of_ids_or_labels_is_not_a_dimension():
    assert choose_dimensions(["id", "0", "1", "Label", "grade"], ColumnSpec(None, {"types": "grade"})) == ["0", "1"]
    assert choose_dimensions(["x", "y", "label"], ColumnSpec()) == ["x", "y"]
    assert choose_dimensions(["a", "y"], ColumnSpec()) == ["a"]


@pytest.mark.parametrize(
    ("numeric", "expected"),
    [
        (["e0", "e1", "price", "year"], ["e0", "e1"]),
        (["price", *(f"emb_{i:03}" for i in range(3))], ["emb_000", "emb_001", "emb_002"]),
        (["v[0]", "v[1]", "user_id", "userId", "SessionID"], ["v[0]", "v[1]"]),
        (["e0", "e1", "a", "b", "c"], ["e0", "e1", "a", "b", "c"]),
        (["e0", "e1", "f0", "f1"], ["e0", "e1", "f0", "f1"]),
        (["e0", "e1", "e2", "f0", "f1"], ["e0", "e1", "e2"]),
        (["0", "1", "2"], ["0", "1", "2"]),
        (["x", "y", "z"], ["x", "y", "z"]),
    ],
)
def test_numbered_columns_are_dimensions_if_they_are_most_of_the_columns(numeric, expected):
    assert choose_dimensions(numeric, ColumnSpec()) == expected


@pytest.mark.parametrize(
    ("numeric", "names", "expected"),
    [
        (["e0", " e1"], ["e0", " e1", "text"], ["e0", " e1"]),
        (["e0", "E1", "e2"], ["e0", "E1", "e2", "price"], ["e0", "E1", "e2"]),
        (["e1", "e2", "price"], [" e0", "e1", "e2", "price"], [" e0", "e1", "e2"]),
        (["e0", "e1"], ["e0", "e1", "e2", "e3", "e4"], ["e0", "e1", "e2", "e3", "e4"]),
        (["text3"], ["text1", "text2", "text3"], ["text3"]),
        (["a", "b", "e0"], ["a", "b", "e0", "e1"], ["a", "b", "e0"]),
    ],
)
def test_columns_with_the_name_of_a_dimension_are_dimensions(numeric, names, expected):
    assert choose_dimensions(numeric, ColumnSpec(), names) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["e0", "e12"], True),
        (["0", "1"], True),
        (["x", "y"], True),
        (["e0", "f1"], False),
        (["x", "price"], False),
        (["e0", "price"], False),
    ],
)
def test_common_patterns_of_names(names, expected):
    assert have_common_pattern(names) is expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2], np.array([1, 2])),
        ([True, False], np.array([1, 0])),
        (np.array([1, 2], np.uint8), np.array([1, 2])),
        ([1.5, 2], np.array([1.5, 2.0])),
        (np.array([0.5], np.float16), np.array([0.5])),
        (["a", "b"], np.array(["a", "b"], object)),
        (np.array(["a", "b"]), np.array(["a", "b"], object)),
        (np.array([b"a", b"\xff"]), np.array(["a", "\\xff"], object)),
        (np.array([1, 2], object), np.array([1, 2])),
        (np.array(["2024-01-02"], "M8[D]"), np.array(["2024-01-02"], object)),
    ],
)
def test_labels_are_integers_floats_or_strings(values, expected):
    found, missing = plain_values(values, "labels")
    assert missing is None
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_torch_labels_are_numbers():
    torch = pytest.importorskip("torch")
    assert plain_values(torch.tensor([3, 4]), "labels")[0].tolist() == [3, 4]


@pytest.mark.parametrize("values", [[1, None], [1.0, NAN], ["a", None], np.array(["a", NAN], object)])
def test_missing_labels_are_noticed_and_missing_text_is_empty(values):
    assert plain_values(values, "labels")[1].tolist() == [False, True]
    assert plain_values(values, "text")[0].tolist() == [str(values[0]), ""]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a", 1], "both numbers and text"),
        (np.zeros((2, 2)), r"has shape \(2, 2\)"),
        ([[1], [1, 2]], "per row|one-dimensional|shape"),
    ],
)
def test_labels_of_mixed_types_or_wrong_shapes_are_rejected(values, message):
    with pytest.raises(InputError, match=message):
        plain_values(values, "labels")


def test_plural():
    assert [plural(n, w) for n, w in ((1, "row"), (2, "row"), (0, "entry"), (1, "entry"))] == [
        *("1 row", "2 rows", "0 entries", "1 entry"),
    ]
