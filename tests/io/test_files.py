"""An interruption keeps the old file and leaves no other file."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from isoscope import InputError
from isoscope._io import files
from isoscope._io.files import atomic_replace


def test_the_new_file_replaces_the_old_one(tmp_path):
    path = tmp_path / "a.txt"
    for text in ("first", "second"):
        with atomic_replace(path) as temporary:
            temporary.write_text(text)
            assert temporary.parent == tmp_path  # a rename within one directory is atomic
        assert path.read_text() == text
    assert os.listdir(tmp_path) == ["a.txt"]


def write_half(path, interruption):
    with atomic_replace(path) as temporary:
        temporary.write_text("ne")
        raise interruption


@pytest.mark.parametrize("interruption", [OSError, KeyboardInterrupt, MemoryError])
def test_an_interruption_leaves_the_old_file_and_no_temporary_file(tmp_path, interruption):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(interruption):
        write_half(path, interruption)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_an_interruption_of_the_first_write_leaves_nothing(tmp_path):
    with pytest.raises(MemoryError):
        write_half(tmp_path / "a.txt", MemoryError)
    assert os.listdir(tmp_path) == []


def test_the_old_file_exists_until_the_new_one_is_complete(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with atomic_replace(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"


def test_the_last_of_two_concurrent_writers_wins(tmp_path):
    path = tmp_path / "a.txt"
    with atomic_replace(path) as first:
        with atomic_replace(path) as second:
            first.write_text("first")
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["a.txt"]


WRITER = """
import sys, time
from isoscope._io.files import atomic_replace

with atomic_replace(sys.argv[1]) as temporary:
    temporary.write_text("half")
    print(temporary, flush=True)
    time.sleep(600)
"""


@contextmanager
def writing(path):
    """Run a process that is writing a file, and yield it with its temporary file."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        yield process, Path(process.stdout.readline().strip())
    finally:
        process.kill()
        process.communicate()


def test_the_temporary_file_of_a_killed_process_is_removed_by_the_next(tmp_path):
    path = tmp_path / "out [1].txt"
    others = [tmp_path / f".{name}.0123456789abcdef.part" for name in ("out [1].tx", "xout [1].txt", "out 1.txt")]
    others += [tmp_path / f".{path.name}.{end}.part" for end in ("mine", "0123456789abcdef.x")]
    for each in others:
        each.touch()
    with writing(path) as (process, left):
        process.kill()
        process.wait()
        assert left.read_text() == "half"
        with atomic_replace(path) as temporary:
            temporary.write_text("new")
        assert not left.exists()
    assert sorted(tmp_path.iterdir()) == sorted([path, *others])


def test_the_temporary_file_of_a_running_process_is_kept(tmp_path):
    path = tmp_path / "out.txt"
    with writing(path) as (_, temporary):
        with atomic_replace(path) as other:
            other.write_text("new")
        assert temporary.read_text() == "half"
        assert path.read_text() == "new"


def test_a_temporary_file_that_is_removed_before_it_is_locked_is_created_again(tmp_path, monkeypatch):
    removed = []
    lock = files.lock_file

    def remove_then_lock(handle):
        if len(removed) < 2:
            removed.append(next(tmp_path.glob(".out.txt.*.part")))
            removed[-1].unlink()
        lock(handle)

    monkeypatch.setattr(files, "lock_file", remove_then_lock)
    with atomic_replace(tmp_path / "out.txt") as temporary:
        assert temporary not in removed
        assert temporary.exists()
        temporary.write_text("new")
    assert (tmp_path / "out.txt").read_text() == "new"


def test_the_content_is_flushed_before_the_rename(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: calls.append("fsync") or fsync(handle))
    monkeypatch.setattr(os, "replace", lambda a, b: calls.append("replace") or replace(a, b))
    with atomic_replace(tmp_path / "a.txt") as temporary:
        temporary.write_text("new")
    assert calls[:2] == ["fsync", "replace"]


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_the_finished_file_has_ordinary_permissions(tmp_path, mask):
    before = os.umask(mask)
    try:
        with atomic_replace(tmp_path / "a.txt") as temporary:
            temporary.write_text("new")
        assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o666 & ~mask
        assert os.umask(mask) == mask
    finally:
        os.umask(before)


def test_a_bare_name_is_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with atomic_replace("a.txt") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "a.txt").read_text() == "new"


def test_missing_directory_is_not_created(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_replace(tmp_path / "none" / "a.txt"):
        pass
    assert os.listdir(tmp_path) == []


def test_existing_directory_is_not_replaced(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="a"), atomic_replace(tmp_path / "a") as temporary:
        temporary.write_text("new")
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").is_dir()


def test_symlinks_and_permissions_are_preserved(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    with atomic_replace(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o600


def test_pipe_is_written_to_and_not_replaced(tmp_path):
    import os
    import threading

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with atomic_replace(pipe) as place:
        place.write_text("through")
    reader.join()
    assert read == ["through"]
    assert pipe.is_fifo()


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_new_files_get_the_permissions_of_the_umask(mask, tmp_path):
    def write_privately(path):
        path.unlink()
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))  # as safetensors does

    before = os.umask(mask)
    try:
        with atomic_replace(tmp_path / "a") as temporary:
            write_privately(temporary)
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o666 & ~mask
        (tmp_path / "a").chmod(0o640)
        with atomic_replace(tmp_path / "a") as temporary:
            write_privately(temporary)
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


def test_a_folder_is_locked_by_a_file_where_folders_cannot_be_locked(tmp_path, monkeypatch):
    """On Windows; `msvcrt.locking` is replaced by the lock of this system, which is also bound to the open file."""
    import fcntl

    class Windows:
        LK_NBLCK = fcntl.LOCK_EX | fcntl.LOCK_NB

        @staticmethod
        def locking(handle, mode, size):
            assert size == 1
            fcntl.flock(handle, mode)

    monkeypatch.setattr(files, "fcntl", None)
    monkeypatch.setattr(files, "msvcrt", Windows, raising=False)
    with files.lock_folder(tmp_path):
        assert os.listdir(tmp_path) == [".lock"]
        with (
            open(tmp_path / ".lock", "rb") as other,
            pytest.raises(BlockingIOError),  # PermissionError on Windows
        ):
            files.lock_file(other)
    assert not os.listdir(tmp_path)
    with open(tmp_path / ".lock", "wb") as other:
        files.lock_file(other)
        with pytest.raises(InputError, match="is being written by another process"), files.lock_folder(tmp_path):
            pass


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody can create files")
def test_error_names_the_output_and_not_the_temporary_file():
    expected = r"^/proc/page\.html cannot be written: .*; choose another folder$"
    with pytest.raises(InputError, match=expected), atomic_replace("/proc/page.html"):
        pass
