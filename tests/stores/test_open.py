"""Every source is opened by its format; errors are one clear line."""

import gzip
import os
import subprocess
import sys

import numpy as np
import pytest

from isoscope import InputError
from isoscope.errors import NotFoundError, ParameterError
from isoscope.stores.open import open_store
from tests.stores import conftest
from tests.stores.conftest import FORMATS, D, N


def refused(path, match=None, **asked):
    """Check that opening or reading raises an error of one line that names the file."""
    with pytest.raises(InputError, match=match) as caught:
        for _ in open_store(path, **asked).batches():
            pass
    message = str(caught.value)
    assert "\n" not in message
    assert os.path.basename(os.fspath(path)) in message
    return message


def test_a_missing_file_is_reported_with_similar_names(tmp_path):
    np.save(tmp_path / "vectors.npy", np.eye(3))
    refused(tmp_path / "vector.npy", r"does not exist: did you mean vectors\.npy\?")
    refused(tmp_path / "quite_else.parquet", "does not exist: check the spelling")
    refused(tmp_path / "no" / "vectors.npy", "does not exist, and neither does its folder")
    with pytest.raises(InputError, match="matches no file"):
        open_store(tmp_path / "*.parquet")


def test_an_empty_string_is_rejected(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", np.eye(3))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match="the source is an empty string"):
        open_store("")
    assert open_store(".").dim == 3


@pytest.mark.parametrize("form", [f for f in FORMATS if "shards" not in f.name], ids=repr)
def test_an_empty_file_is_reported(form, tmp_path):
    path = tmp_path / form.name
    path.touch()
    refused(path, "is empty")


@pytest.mark.parametrize("form", [f for f in FORMATS if "shards" not in f.name], ids=repr)
def test_random_bytes_are_reported(form, tmp_path, rng):
    path = tmp_path / form.name
    path.write_bytes(b"\x01\x02" + rng.bytes(2000))
    refused(path)


CUT = {"a.npy", "a.npz", "packed.npz", "a.safetensors", "a.parquet", "a.feather", "a.arrow", "stream.arrow", "a.hdf5"}
CUT |= {"a.fvecs", "a.bin", "gensim.bin", "a.vec", "a.txt.gz", "a.jsonl.gz", "a.csv.gz", "a.jsonl", "fortran.npy"}


@pytest.mark.parametrize("form", [f for f in FORMATS if f.name in CUT], ids=repr)
@pytest.mark.parametrize("share", [0.001, 0.5, 0.97])
def test_a_truncated_file_is_reported(form, share, written, tmp_path):
    whole = written(form).read_bytes()
    path = tmp_path / form.name
    path.write_bytes(whole[: int(share * len(whole)) + 1])
    refused(path)


@pytest.mark.parametrize(
    ("name", "write"),
    [(f.name, f.write) for f in FORMATS if f.name in {"a.npy", "a.npz", "a.parquet", "a.feather", "a.hdf5"}],
)
def test_unknown_file_extension_is_detected_from_first_bytes(name, write, written, tmp_path, truth):
    path = tmp_path / "vectors.data"
    path.write_bytes(written(next(f for f in FORMATS if f.name == name)).read_bytes())
    np.testing.assert_array_equal(np.concatenate(list(open_store(path).chunks())), truth.vectors)


def test_unknown_formats_are_reported_with_the_known_ones(tmp_path):
    (tmp_path / "a.xyz").write_bytes(b"something else")
    refused(tmp_path / "a.xyz", r"unknown extension \.xyz.*\.npy, .*\.parquet, .*\.jsonl")
    (tmp_path / "plain").write_bytes(b"something else")
    refused(tmp_path / "plain", "no extension")
    (tmp_path / "a.npy.gz").write_bytes(gzip.compress(b"x"))
    refused(tmp_path / "a.npy.gz", "compressed with gzip")
    np.save(tmp_path / "a.npy", np.eye(3))
    (tmp_path / "a.npy").rename(tmp_path / "a.txt")
    refused(tmp_path / "a.txt", r"is not text: it starts like a \.npy file")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="everything may be read")
def test_an_unreadable_file(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(3))
    (tmp_path / "a.npy").chmod(0)
    refused(tmp_path / "a.npy", "may not be read")


def test_permission_error_is_reported_in_one_line(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", np.eye(3))

    def forbid(*args, **more):
        raise PermissionError(13, "Permission denied", str(tmp_path / "a.npy"))

    monkeypatch.setattr("pathlib.Path.open", forbid)
    refused(tmp_path / "a.npy", "cannot be read: permission denied")


def test_ctrl_c_passes_through(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", np.eye(3))

    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("numpy.lib.format.read_magic", interrupt)
    with pytest.raises(KeyboardInterrupt):
        open_store(tmp_path / "a.npy")


@pytest.mark.parametrize("form", [f for f in FORMATS if f.columns], ids=repr)
def test_an_unknown_column_is_reported_with_the_known_ones(form, written):
    known = "word" if form.name.split(".")[1:2] in (["txt"], ["vec"], ["bin"]) else "label"
    with pytest.raises(InputError, match=rf"has no column flavour for labels: the columns are .*{known}"):
        open_store(written(form), labels="flavour")


def test_standard_input_is_read_for_several_passes(tmp_path, truth):
    code = (
        "import sys, os, numpy as np; from isoscope.stores import open_store; s = open_store('-');"
        "a = np.concatenate(list(s.chunks(7))); b = np.concatenate(list(s.chunks()));"
        "print(len(s), s.dim, s.dtype, s.name, np.array_equal(a, b), float(a[3].sum()),"
        "s.take([3]).sum() == a[3].sum(), os.listdir(os.environ['TMPDIR']), sep='|')"
    )
    for order in ("C", "F"):
        np.save(tmp_path / "a.npy", np.array(truth.vectors, order=order))
        (tmp_path / "own").mkdir(exist_ok=True)
        ran = subprocess.run(
            [sys.executable, "-c", code],
            input=(tmp_path / "a.npy").read_bytes(),
            env={**os.environ, "TMPDIR": str(tmp_path / "own")},
            capture_output=True,
            check=True,
        )
        expected = f"{N}|{D}|float32|standard input|True|{float(truth.vectors[3].sum())}|True|[]"
        assert ran.stdout.decode().strip() == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [(b"", "input is not a complete .npy"), (b"hello", "not a complete"), (None, "input is truncated")],
)
def test_standard_input_without_vectors_raises(given, message, tmp_path):
    np.save(tmp_path / "a.npy", np.eye(30))
    given = (tmp_path / "a.npy").read_bytes()[:-100] if given is None else given
    code = "from isoscope.stores import open_store; open_store('-')"
    ran = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, check=False)
    assert message in ran.stderr.decode().strip().splitlines()[-1]


def test_opening_imports_no_heavy_library(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(3))
    code = (
        "import sys; from isoscope.stores import open_store; list(open_store(sys.argv[1]).chunks());"
        "heavy = {'pyarrow', 'h5py', 'safetensors', 'pandas', 'polars', 'datasets', 'torch', 'numba', 'scipy'};"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.npy")], capture_output=True, check=True)
    assert ran.stdout.decode().strip() == "[]"


def test_a_name_with_glob_characters_is_a_file_first(tmp_path, truth):
    path = tmp_path / "a[1].npy"
    conftest.write_npy(truth, path)
    assert len(open_store(str(path))) == N


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_rejected_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "a.npy")
    refused(tmp_path / "a.npy", 'is not a regular file: pass "-"')


def test_the_folder_of_an_unknown_user_does_not_exist():
    refused("~no_such_user_1/a.npy", "~no_such_user_1/a.npy does not exist, and neither does its folder")


@pytest.mark.skipif(sys.platform != "linux", reason="file names of other systems are text")
@pytest.mark.parametrize("form", [f for f in FORMATS if "shards" not in f.name], ids=repr)
def test_a_file_name_that_is_not_utf8(form, written, tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff" + form.name.encode()
    os.link(written(form), path)
    store = open_store(os.fsdecode(path))
    assert sum(len(chunk) for chunk in store.chunks()) == N
    store.take([0, N - 1])


def test_broken_links_are_described(tmp_path):
    (tmp_path / "loop.npy").symlink_to("loop.npy")
    (tmp_path / "gone.npy").symlink_to("nowhere.npy")
    with pytest.raises(NotFoundError, match=r"loop\.npy is a symbolic link to loop\.npy, which leads back to it"):
        open_store(tmp_path / "loop.npy")
    with pytest.raises(NotFoundError, match=r"gone\.npy is a symbolic link to nowhere\.npy, which does not exist"):
        open_store(tmp_path / "gone.npy")
