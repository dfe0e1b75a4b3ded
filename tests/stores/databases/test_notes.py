"""Notes decide whether a collection can be resumed; row counts decide whether it can be read."""

import warnings

import pytest

from isoscope._core.errors import (
    DataWarning,
    MissingValueError,
    OutputError,
    ParameterError,
    TooFewRowsError,
)
from isoscope.stores.databases.address import parse_address
from isoscope.stores.databases.base import (
    check_options,
    check_resumable,
    check_row_count,
    count_usable_rows,
    format_note,
    suggest_names,
    warn_if_unfinished,
)

ABOUT = {"source": "a", "repair": "b"}


def test_same_origin_resumes_finished_or_not():
    check_resumable(format_note(ABOUT), ABOUT, "here")
    check_resumable(format_note(ABOUT, rows=5), dict(reversed(ABOUT.items())), "here")


@pytest.mark.parametrize("other", [{"source": "a", "repair": "c"}, {"source": "a"}, {**ABOUT, "more": "x"}])
def test_other_origin_raises_with_the_difference(other):
    name = next(name for name in {**ABOUT, **other} if ABOUT.get(name) != other.get(name))
    with pytest.raises(OutputError, match=f"here .* {name}: .*--restart"):
        check_resumable(format_note(ABOUT), other, "here")


@pytest.mark.parametrize("note", [None, ""])
def test_collection_without_note_is_not_touched(note):
    with pytest.raises(OutputError, match="not created by isoscope"):
        check_resumable(note, ABOUT, "here")


def test_only_unfinished_collections_warn():
    with pytest.warns(DataWarning, match="here is incomplete"):
        warn_if_unfinished(format_note(ABOUT), "here")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_unfinished(format_note(ABOUT, rows=0), "here")
        warn_if_unfinished(None, "here")


def test_rows_without_vector_raise_or_are_dropped():
    strict, lenient = parse_address("lancedb:here#docs"), parse_address("lancedb:here#docs?missing=drop")
    assert count_usable_rows(strict, 10) == count_usable_rows(strict, 10, {"no v": 0}) == 10
    problems = {"no v": 2, "3 dimensions instead of 2": 1}
    with pytest.raises(MissingValueError, match=r"3 of 10 rows .*2 with no v and 1 with 3 dim.* id 7: .*missing=drop"):
        count_usable_rows(strict, 10, problems, lambda: "id 7")
    with pytest.warns(DataWarning, match=r"3 of 10 rows .*dropped"):
        assert count_usable_rows(lenient, 10, problems) == 7
    with pytest.raises(MissingValueError, match=r"10 of 10 rows.*need at least one vector"):
        count_usable_rows(lenient, 10, {"no v": 10})
    with pytest.raises(TooFewRowsError, match="no rows"):
        count_usable_rows(lenient, 0)


def test_fewer_rows_than_written_raise():
    check_row_count(10, 10, "here")
    check_row_count(10, 12, "here")  # the source has lost rows since an earlier run
    with pytest.raises(OutputError, match=r"9 rows although 10 were written.* unique ids"):
        check_row_count(10, 9, "here")


def test_similar_names_are_suggested():
    assert suggest_names("dosc", ["docs", "queries"]) == "did you mean docs?"
    assert suggest_names("zzz", ["docs", "queries"]) == "choose from docs, queries"
    assert suggest_names("zzz", []) == "none exist yet"
    assert suggest_names("zzz", [f"name{i:02}" for i in range(14)]).endswith("name11 and 2 more")


def test_unknown_option_raises():
    check_options({"missing": "drop"}, ["missing"], "here")
    with pytest.raises(ParameterError, match="here: unknown option mising: choose from missing"):
        check_options({"mising": "drop"}, ["missing"], "here")
    with pytest.raises(ParameterError, match="here: unknown option missing: no options"):
        check_options({"missing": "drop"}, [], "here")
