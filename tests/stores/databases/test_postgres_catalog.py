"""Table names and comments."""

import pytest

from isoscope._core.errors import InputError
from isoscope.stores.databases.postgres_catalog import read_note, split_name


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("docs", (None, "docs")),
        ("public.docs", ("public", "docs")),
        ('"a.b".docs', ("a.b", "docs")),
        ('"a.b"', (None, "a.b")),
        ('x."Docs d"', ("x", "Docs d")),
        ('x."we""ird."""', ("x", 'we"ird."')),
    ],
)
def test_schema_and_name(typed, found):
    assert split_name(typed) == found


@pytest.mark.parametrize("typed", ["a.b.c", ".docs", "docs.", ""])
def test_invalid_table_name_raises(typed):
    with pytest.raises(InputError, match=r"need NAME or SCHEMA\.NAME"):
        split_name(typed)


def test_only_isoscope_comments_are_notes():
    assert [read_note(each) for each in (None, "", "docs of isoscope", 'isoscope {"about": 1}')] == [
        None,
        None,
        None,
        '{"about": 1}',
    ]
