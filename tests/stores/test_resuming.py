"""What is left of an interrupted run is found, counts only if it fits, and belongs to one process."""

import json
import os

import pytest

from isoscope import InputError
from isoscope.stores.resuming import ResumableFile
from isoscope.stores.targets import Checkpoint

ABOUT = {"source": [["a.npy", 5, 7]], "repair": "x"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out.npy"


def left_by(path, mark, about=ABOUT, data=b"0123456789"):
    with ResumableFile(path, about) as left:
        left.rows.write_bytes(data)
        left.keep(mark)


@pytest.mark.parametrize("mark", [Checkpoint(3, 10), Checkpoint(3, 4, (b"one", b"two"))])
def test_what_was_kept_is_found_again(path, mark):
    left_by(path, mark)
    with ResumableFile(path, ABOUT) as left:
        assert left.found() == (mark, "")
        left.put()
    assert path.read_bytes() == b"0123456789"
    assert os.listdir(path.parent) == ["out.npy"]


def test_footers_are_added_to_those_that_are_there(path):
    left_by(path, Checkpoint(1, 2, (b"one",)))
    with ResumableFile(path, ABOUT) as left:
        left.found()
        left.keep(Checkpoint(2, 4, (b"one", b"two")))
    with ResumableFile(path, ABOUT) as left:
        assert left.found()[0].footers == (b"one", b"two")


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({**ABOUT, "repair": "y"}, "its repair differed"),
        ({**ABOUT, "more": 1}, "its more differed"),
        ({"repair": "x"}, "its source differed"),
        (None, "its source and repair differed"),
    ],
)
def test_what_was_made_of_something_else_is_removed(about, why, path):
    left_by(path, Checkpoint(3, 10))
    with ResumableFile(path, about) as left:
        assert left.found() == (Checkpoint(), why)
        assert os.listdir(left.folder) == ["lock"]
        assert left.found() == (Checkpoint(), "")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": 1}', '{"rows": "x", "size": 1, "about": {}, "footers": 0}'])
def test_a_damaged_note_is_no_use(text, path):
    left_by(path, Checkpoint(3, 10))
    with ResumableFile(path, ABOUT) as left:
        (left.folder / "progress.json").write_text(text)
        assert left.found() == (Checkpoint(), "it is damaged")


def test_rows_or_footers_that_are_gone_are_no_use(path):
    left_by(path, Checkpoint(3, 10))
    with ResumableFile(path, ABOUT) as left:
        os.truncate(left.rows, 9)
        assert left.found() == (Checkpoint(), "it is cut")
    left_by(path, Checkpoint(3, 4, (b"one",)))
    with ResumableFile(path, ABOUT) as left:
        (left.folder / "footer-0").unlink()
        assert left.found() == (Checkpoint(), "it is damaged")
    with ResumableFile(path, ABOUT) as left:
        left.rows.write_bytes(b"and then the end")
    with ResumableFile(path, ABOUT) as left:
        assert left.found() == (Checkpoint(), "it had kept nothing")


def test_a_second_one_is_refused_until_the_first_is_done(path):
    pytest.importorskip("fcntl")
    with (
        ResumableFile(path, ABOUT) as first,
        pytest.raises(InputError, match=r"out\.npy is being written by another process"),
        ResumableFile(path, ABOUT),
    ):
        pass
    with ResumableFile(path, ABOUT) as second:
        assert second.folder == first.folder
        second.drop()
    with ResumableFile(path, ABOUT) as third:  # the folder of the lock was removed
        assert third.folder.is_dir()
        third.drop()
    assert os.listdir(path.parent) == []


def test_the_note_is_json_that_says_what_it_is_of(path):
    left_by(path, Checkpoint(3, 10))
    kept = json.loads((path.parent / ".out.npy.unfinished" / "progress.json").read_text())
    assert kept == {"rows": 3, "size": 10, "footers": 0, "about": ABOUT}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_no_file(path):
    os.mkfifo(path)
    with pytest.raises(InputError, match="is not a file"), ResumableFile(path, ABOUT):
        pass
