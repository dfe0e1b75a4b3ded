"""A repaired store contains the repaired rows; a single file is written atomically."""

import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone

import isoscope
from isoscope import InputError, repair_store
from isoscope.stores.open import open_store
from isoscope.stores.store import Store
from isoscope.transforms import apply
from tests.conftest import tolerance
from tests.transforms.conftest import EVERY, clustered_cloud

ENDINGS = [".npy", ".safetensors", ".parquet"]
each_ending = pytest.mark.parametrize("ending", ENDINGS)
N, D = 300, 8


@pytest.fixture
def corpus(rng):
    return clustered_cloud(rng, N, D).astype(np.float32)


@pytest.fixture
def source(corpus, tmp_path):
    path = tmp_path / "corpus.npy"
    np.save(path, corpus)
    return path


@pytest.fixture
def _many_batches(monkeypatch):
    """Batches of 20 rows."""
    monkeypatch.setattr("isoscope.stores.store._BATCH_BYTES", 20 * 4 * D)


def read(path):
    return open_store(path).take(range(len(open_store(path))))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("repair", EVERY, ids=str)
@pytest.mark.usefixtures("_many_batches")
def test_repaired_store_equals_repair_of_its_rows(repair, corpus, source, tmp_path):
    repair = clone(repair).fit(corpus)
    for dtype in ("f2", "f4", "f8"):
        np.save(source, corpus.astype(dtype))
        assert repair_store(source, repair, tmp_path / "a.npy") == N
        found, expected = np.load(tmp_path / "a.npy"), repair.transform(corpus.astype(dtype))
        assert found.dtype == expected.dtype == np.dtype(dtype)
        np.testing.assert_allclose(found, expected, atol=tolerance(dtype) * np.abs(expected).max(), rtol=0)
        if type(repair) in (isoscope.Center, isoscope.Standardize):
            np.testing.assert_array_equal(found, expected)  # no product whose order of sums is open


@each_ending
def test_any_source_can_be_written_to_any_format(ending, corpus, tmp_path):
    table = pa.table({"id": np.arange(N), "v": list(corpus), "note": [f"n{i}" for i in range(N)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=70)
    repair = isoscope.Whiten("pca", 3).fit(corpus)
    for given in (tmp_path / "a.parquet", table, corpus, open_store(corpus)):
        assert repair_store(given, repair, tmp_path / f"out{ending}") == N
        np.testing.assert_allclose(read(tmp_path / f"out{ending}"), repair.transform(corpus), atol=1e-4)
        if ending == ".parquet" and not isinstance(given, np.ndarray | Store):
            found = pq.read_table(tmp_path / f"out{ending}")
            assert found.schema.names == ["id", "v", "note"]
            assert found.drop(["v"]).equals(table.drop(["v"]))
    assert names(tmp_path) == sorted(["a.parquet", f"out{ending}"])


def test_integers_become_float32_and_memory_order_does_not_matter(corpus, tmp_path):
    whole = corpus.astype(np.int8)
    repair = isoscope.AllButTheTop(1).fit(whole.astype(np.float32))
    for given in (whole, np.asfortranarray(corpus), corpus[:, ::-1][:, ::-1]):
        repair_store(given, repair, tmp_path / "a.npy")
        found = np.load(tmp_path / "a.npy")
        assert (found.dtype, found.flags.c_contiguous) == (np.float32, True)
        np.testing.assert_allclose(found, repair.transform(given.astype(np.float32)), atol=1e-4)


class Stop(Exception):
    """An unexpected error."""


def stopping(after, error=Stop):
    """A progress callback that raises an error once this many rows are written."""

    def progress(stage, rows, share):
        if rows >= after:
            raise error

    return progress


@each_ending
@pytest.mark.parametrize("after", [1, 100, N])
@pytest.mark.parametrize("error", [KeyboardInterrupt, Stop])
@pytest.mark.usefixtures("_many_batches")
def test_interrupted_run_leaves_only_the_old_file(ending, after, error, corpus, source, tmp_path):
    repair = isoscope.Whiten().fit(corpus)
    path = tmp_path / f"out{ending}"
    path.write_bytes(b"old")
    with pytest.raises(error):
        repair_store(source, repair, path, progress=stopping(after, error))
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == sorted(["corpus.npy", path.name])


def test_large_source_warning_suggests_a_folder(corpus, source, tmp_path, monkeypatch):
    repair, said = isoscope.Center().fit(corpus), []
    repair_store(source, repair, tmp_path / "out.npy", say=said.append)
    assert said == []
    monkeypatch.setattr(apply, "_LARGE_SOURCE", 1000)
    repair_store(source, repair, tmp_path / "out.npy", say=said.append)
    assert ["folder" in words and "resume" in words for words in said] == [True]


@each_ending
@pytest.mark.usefixtures("_many_batches")
def test_rows_with_nan_or_overflow_are_named_and_leave_no_file(ending, corpus, source, tmp_path):
    repair = isoscope.Whiten().fit(corpus)
    path = tmp_path / f"out{ending}"
    for bad in (np.nan, np.inf, -np.inf):
        spoilt = corpus.copy()
        spoilt[177, 3] = bad
        np.save(source, spoilt)
        with pytest.raises(InputError, match=r"row 177 of corpus\.npy contains NaN or infinity"):
            repair_store(source, repair, path)
        assert names(tmp_path) == ["corpus.npy"]
    spoilt = corpus.astype(np.float16)
    spoilt[205] = 65_000
    np.save(source, spoilt)
    tight = isoscope.Standardize().fit(1e-3 * corpus)
    with pytest.raises(InputError, match=r"row \d+ of corpus\.npy exceeds the range of float16 .* as float32"):
        repair_store(source, tight, path)
    assert names(tmp_path) == ["corpus.npy"]


def test_large_finite_values_do_not_raise(corpus, tmp_path):
    large = corpus * np.float32(1e30)  # their squares are beyond float32
    repair_store(large, isoscope.Center().fit(corpus), tmp_path / "a.npy")
    assert np.isfinite(np.load(tmp_path / "a.npy")).all()


def test_invalid_arguments_raise_before_writing(corpus, source, tmp_path):
    repair = isoscope.Center().fit(corpus)
    (tmp_path / "folder.npy").mkdir()
    before = names(tmp_path)
    for target, message in (
        ("a.csv", "extension"),
        ("no/a.npy", "is not a folder"),
        ("folder.npy", "is a folder"),
        ("corpus.npy", "is the source"),
    ):
        with pytest.raises(InputError, match=message):
            repair_store(source, repair, tmp_path / target)
    with pytest.raises(InputError, match="array has 3 dimensions but the Center was fitted to vectors with 8"):
        repair_store(corpus[:, :3], repair, tmp_path / "a.npy")
    with pytest.raises(ValueError, match="not fitted"):
        repair_store(source, isoscope.Center(), tmp_path / "a.npy")
    assert names(tmp_path) == before


def test_symlink_and_permissions_are_preserved(corpus, source, tmp_path):
    (tmp_path / "far").mkdir()
    real, link = tmp_path / "far" / "real.npy", tmp_path / "link.npy"
    real.write_bytes(b"old")
    real.chmod(0o600)
    link.symlink_to(real)
    repair_store(source, isoscope.Center().fit(corpus), link)
    assert link.is_symlink()
    assert np.load(real).shape == (N, D)
    assert real.stat().st_mode & 0o777 == 0o600
    assert names(tmp_path / "far") == ["real.npy"]


SCRIPT = """
import sys, isoscope
import isoscope.stores.store
isoscope.stores.store._BATCH_BYTES = 20 * 4 * 8
isoscope.repair_store(sys.argv[2], isoscope.load_transform(sys.argv[1]), sys.argv[3])
"""


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="the limit on file sizes is POSIX's")
@each_ending
def test_failed_write_leaves_no_files(ending, corpus, source, tmp_path):
    isoscope.Center().fit(corpus).save(tmp_path / "repair")
    path = tmp_path / f"out{ending}"
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))\n"
    ended = subprocess.run(
        [sys.executable, "-c", limit + SCRIPT, str(tmp_path / "repair"), str(source), str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert "File too large" in ended.stderr
    assert names(tmp_path) == ["corpus.npy", "repair"]


def test_a_repair_that_cannot_be_saved_can_be_applied(corpus, source, tmp_path):
    from sklearn.cluster import KMeans

    repair = isoscope.ClusterCenter(clusterer=KMeans(3, random_state=0)).fit(corpus)
    with pytest.raises(Stop):
        repair_store(source, repair, tmp_path / "out.npy", progress=stopping(1))
    assert names(tmp_path) == ["corpus.npy"]
    repair_store(source, repair, tmp_path / "out.npy")
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), repair.transform(corpus), atol=1e-5)


def test_guessed_ids_with_missing_values_are_omitted(tmp_path):
    source, path = tmp_path / "a.jsonl", tmp_path / "a.parquet"
    source.write_text("".join(f'{{"v": [{i}, 1], "id": {i if i != 7 else "null"}, "text": "t"}}\n' for i in range(9)))
    repair = isoscope.Center().fit(source)
    assert repair_store(source, repair, path) == 9
    assert dict(open_store(path).columns) == {"text": "text"}
    assert names(tmp_path) == ["a.jsonl", "a.parquet"]
