"""What isoscope notes of its collections decides whether they are gone on with, and says when they are half."""

import warnings

import pytest

from isoscope._core.errors import DataWarning, InputError
from isoscope.stores.databases.base import (
    can_resume,
    check_missing_vectors,
    check_options,
    check_row_count,
    format_note,
    suggest_names,
    warn_if_unfinished,
)

ABOUT = {"source": "a", "repair": "b"}


def test_the_same_is_gone_on_with_whether_it_is_whole_or_not():
    assert can_resume(format_note(ABOUT), ABOUT, "here")
    assert can_resume(format_note(ABOUT, rows=5), dict(reversed(ABOUT.items())), "here")


@pytest.mark.parametrize("other", [{"source": "a", "repair": "c"}, {"source": "a"}, {**ABOUT, "more": "x"}])
def test_another_is_refused_with_what_differs(other):
    name = next(name for name in {**ABOUT, **other} if ABOUT.get(name) != other.get(name))
    with pytest.raises(InputError, match=f"here was written by isoscope with another {name}: .* --restart"):
        can_resume(format_note(ABOUT), other, "here")


@pytest.mark.parametrize("found", [None, ""])
def test_what_has_no_note_is_not_touched(found):
    with pytest.raises(InputError, match="was not made by isoscope: nothing was touched"):
        can_resume(found, ABOUT, "here")


def test_only_what_is_half_is_told():
    with pytest.warns(DataWarning, match="here was not written to its end"):
        warn_if_unfinished(format_note(ABOUT), "here")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_unfinished(format_note(ABOUT, rows=0), "here")
        warn_if_unfinished(None, "here")


def test_rows_without_a_vector_are_refused_or_told_or_all():
    check_missing_vectors(0, 10, None, False, "here")
    with pytest.raises(InputError, match=r"no vector in 2 of 10 rows, the first has the id x: .*\?missing=drop"):
        check_missing_vectors(2, 10, "x", False, "here")
    with pytest.warns(DataWarning, match="2 of 10 rows, the first has the id x: they are left out"):
        check_missing_vectors(2, 10, "x", True, "here")
    with pytest.raises(InputError, match=r"10 of 10 rows.*need at least one vector"):
        check_missing_vectors(10, 10, "x", True, "here")


def test_fewer_rows_than_were_written_had_the_same_ids():
    check_row_count(10, 10, "here")
    check_row_count(10, 12, "here")  # the source has lost some since an earlier run
    with pytest.raises(InputError, match="has 9 rows after 10 were written: ids must be different"):
        check_row_count(10, 9, "here")


def test_a_slip_in_a_name_finds_the_name():
    assert suggest_names("dosc", ["docs", "queries"]) == "is it docs?"
    assert suggest_names("zzz", ["docs", "queries"]) == "it has docs, queries"
    assert suggest_names("zzz", []) == "it has none"
    assert suggest_names("zzz", [f"name{i:02}" for i in range(14)]).endswith("name11 and 2 more")


def test_an_option_that_nobody_reads_is_refused():
    check_options({"missing": "drop"}, ["missing"], "here")
    with pytest.raises(InputError, match="here: mising= is not an option here: need missing"):
        check_options({"mising": "drop"}, ["missing"], "here")
    with pytest.raises(InputError, match="here: missing= is not an option: there are none"):
        check_options({"missing": "drop"}, [], "here")
