"""A store that is repaired is the repair of its rows; an interruption costs time and nothing else."""

import json
import os
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
    """Batches of 20 rows, each of which is put on record."""
    monkeypatch.setattr("isoscope.stores.store._BATCH_BYTES", 20 * 4 * D)
    monkeypatch.setattr(apply, "_MARK_BYTES", -1)


def read(path):
    return open_store(path).take(range(len(open_store(path))))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("repair", EVERY, ids=str)
@pytest.mark.usefixtures("_many_batches")
def test_a_repaired_store_is_the_repair_of_its_rows(repair, corpus, source, tmp_path):
    repair = clone(repair).fit(corpus)
    for dtype in ("f2", "f4", "f8"):
        np.save(source, corpus.astype(dtype))
        assert repair_store(repair, source, tmp_path / "a.npy") == N
        found, expected = np.load(tmp_path / "a.npy"), repair.transform(corpus.astype(dtype))
        assert found.dtype == expected.dtype == np.dtype(dtype)
        np.testing.assert_allclose(found, expected, atol=tolerance(dtype) * np.abs(expected).max(), rtol=0)
        if type(repair) in (isoscope.Center, isoscope.Standardize):
            np.testing.assert_array_equal(found, expected)  # no product whose order of sums is open


@each_ending
def test_any_source_goes_to_any_format(ending, corpus, tmp_path):
    table = pa.table({"id": np.arange(N), "v": list(corpus), "note": [f"n{i}" for i in range(N)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=70)
    repair = isoscope.Whiten("pca", 3).fit(corpus)
    for given in (tmp_path / "a.parquet", table, corpus, open_store(corpus)):
        assert repair_store(repair, given, tmp_path / f"out{ending}") == N
        np.testing.assert_allclose(read(tmp_path / f"out{ending}"), repair.transform(corpus), atol=1e-4)
        if ending == ".parquet" and not isinstance(given, np.ndarray | Store):
            found = pq.read_table(tmp_path / f"out{ending}")
            assert found.schema.names == ["id", "v", "note"]
            assert found.drop(["v"]).equals(table.drop(["v"]))
    assert names(tmp_path) == sorted(["a.parquet", f"out{ending}"])


def test_whole_numbers_become_float32_and_fortran_order_is_no_matter(corpus, tmp_path):
    whole = corpus.astype(np.int8)
    repair = isoscope.AllButTheTop(1).fit(whole.astype(np.float32))
    for given in (whole, np.asfortranarray(corpus), corpus[:, ::-1][:, ::-1]):
        repair_store(repair, given, tmp_path / "a.npy")
        found = np.load(tmp_path / "a.npy")
        assert (found.dtype, found.flags.c_contiguous) == (np.float32, True)
        np.testing.assert_allclose(found, repair.transform(given.astype(np.float32)), atol=1e-4)


class Stop(Exception):
    """An end that nobody foresaw."""


def stopping(after, error=Stop):
    """A progress that ends the run once so many rows are written."""

    def progress(stage, rows, share):
        if rows >= after:
            raise error

    return progress


@each_ending
@pytest.mark.parametrize("after", [1, 100, 299, N])
@pytest.mark.usefixtures("_many_batches")
def test_an_interrupted_run_is_gone_on_with_to_the_same_file(ending, after, corpus, source, tmp_path):
    repair = isoscope.Whiten().fit(corpus)
    whole, path = tmp_path / f"whole{ending}", tmp_path / f"out{ending}"
    repair_store(repair, source, whole)
    path.write_bytes(b"old")
    for error in (KeyboardInterrupt, Stop):
        with pytest.raises(error) as caught:
            repair_store(repair, source, path, progress=stopping(after, error))
        assert path.read_bytes() == b"old"
        assert names(tmp_path) == sorted(["corpus.npy", whole.name, path.name, f".{path.name}.unfinished"])
        kept = json.loads((tmp_path / f".{path.name}.unfinished" / "progress.json").read_text())["rows"]
        assert caught.value.__notes__ == [f"run the same command again to go on from row {kept:,}"]
        assert after <= kept < after + 20
        if kept == N:  # only what makes the file whole is left to do
            break
        after = kept + 1
    told, seen = [], []
    assert repair_store(repair, source, path, say=told.append, progress=lambda *now: seen.append(now[1])) == N
    assert told == [f"going on from row {kept:,}, where an earlier run was interrupted"]
    assert all(rows > kept for rows in seen)
    if ending == ".parquet":
        assert pq.read_table(path).equals(pq.read_table(whole))
    else:
        assert path.read_bytes() == whole.read_bytes()
    assert names(tmp_path) == sorted(["corpus.npy", whole.name, path.name])


@pytest.mark.parametrize("form", ["jsonl", "parquet", "shards"])
@each_ending
@pytest.mark.usefixtures("_many_batches")
def test_a_source_of_any_kind_is_gone_on_with(form, ending, corpus, tmp_path):
    source = tmp_path / f"corpus.{form}"
    rows = [{"id": i, "v": row.tolist(), "text": f"t{i}"} for i, row in enumerate(corpus)]
    if form == "jsonl":
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), source, row_group_size=70)
    else:
        source.mkdir()
        for i in range(3):
            pq.write_table(
                pa.Table.from_pylist(rows[i * 100 : i * 100 + 100]), source / f"{i}.parquet", row_group_size=33
            )
    repair = isoscope.AllButTheTop(2).fit(corpus)
    whole, path = tmp_path / f"whole{ending}", tmp_path / f"out{ending}"
    repair_store(repair, source, whole)
    for after in (50, 130, 260):
        with pytest.raises(Stop):
            repair_store(repair, source, path, progress=stopping(after))
    repair_store(repair, source, path)
    np.testing.assert_array_equal(read(path), read(whole))
    if ending == ".parquet":
        assert pq.read_table(path).equals(pq.read_table(whole))
        assert open_store(path).ids.tolist() == list(range(N))
    else:
        assert path.read_bytes() == whole.read_bytes()


@pytest.mark.usefixtures("_many_batches")
def test_what_was_left_of_something_else_is_not_gone_on_with(corpus, source, tmp_path):
    path = tmp_path / "out.npy"
    repair, other = isoscope.Center().fit(corpus), isoscope.Center().fit(corpus[:100])

    def left_by(repair):
        with pytest.raises(Stop):
            repair_store(repair, source, path, progress=stopping(100))

    def told(repair, **more):
        said = []
        repair_store(repair, source, path, say=said.append, **more)
        np.testing.assert_array_equal(np.load(path), repair.transform(np.load(source)))
        assert names(tmp_path) == ["corpus.npy", "out.npy"]
        return said

    left_by(other)
    assert told(repair) == [
        "what an earlier, interrupted run left cannot be gone on with, as its repair differed: beginning anew"
    ]
    left_by(repair)
    os.utime(source, ns=(1, 1))
    assert "its source differed" in told(repair)[0]
    left_by(repair)
    np.save(source, corpus[::-1][:200])
    assert "its source differed" in told(repair)[0]
    left_by(repair)
    np.save(source, corpus.astype("f8"))
    assert "its source and vectors differed" in told(repair)[0]
    left_by(repair)
    assert told(repair, restart=True) == []
    left_by(repair)
    (tmp_path / ".out.npy.unfinished" / "progress.json").write_text("{")
    assert "it is damaged" in told(repair)[0]
    left_by(repair)
    os.truncate(tmp_path / ".out.npy.unfinished" / "rows.npy", 500)
    assert "it is cut" in told(repair)[0]


@pytest.mark.usefixtures("_many_batches")
def test_other_columns_are_another_run(corpus, tmp_path):
    source, path = tmp_path / "a.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table({"a": list(corpus), "b": list(-corpus), "n": np.arange(N)}), source)
    repair = isoscope.Center().fit(corpus)
    said = []
    for i, asked in enumerate(({"vectors": "a"}, {"vectors": "a", "labels": "n"}, {"vectors": "b"})):
        with pytest.raises(Stop):
            repair_store(repair, open_store(source, **asked), path, progress=stopping(100 + 50 * i), say=said.append)
    repair_store(repair, open_store(source, vectors="b"), path, columns=False, say=said.append)
    assert [words.split()[0] for words in said] == ["going", "what", "what"]
    assert ["its vectors differed" in said[1], "its columns differed" in said[2]] == [True, True]
    np.testing.assert_array_equal(read(path), repair.transform(-corpus))


def test_what_is_in_memory_leaves_nothing(corpus, tmp_path):
    repair = isoscope.Center().fit(corpus)
    for given in (corpus, open_store(corpus).mapped(lambda rows: rows, D)):
        with pytest.raises(Stop) as caught:
            repair_store(repair, given, tmp_path / "out.npy", progress=stopping(1))
        assert not hasattr(caught.value, "__notes__")
        assert names(tmp_path) == []


@each_ending
@pytest.mark.usefixtures("_many_batches")
def test_rows_that_cannot_be_repaired_are_named_and_leave_nothing(ending, corpus, source, tmp_path):
    repair = isoscope.Whiten().fit(corpus)
    path = tmp_path / f"out{ending}"
    for bad in (np.nan, np.inf, -np.inf):
        spoilt = corpus.copy()
        spoilt[177, 3] = bad
        np.save(source, spoilt)
        with pytest.raises(InputError, match=r"row 177 of corpus\.npy holds NaN or infinity: drop or mend such rows"):
            repair_store(repair, source, path)
        assert names(tmp_path) == ["corpus.npy"]
    spoilt = corpus.astype(np.float16)
    spoilt[205] = 65_000
    np.save(source, spoilt)
    tight = isoscope.Standardize().fit(1e-3 * corpus)
    with pytest.raises(InputError, match=r"row \d+ of corpus\.npy leaves the range of float16 .*: give .* as float32"):
        repair_store(tight, source, path)
    assert names(tmp_path) == ["corpus.npy"]


def test_large_finite_numbers_are_no_error(corpus, tmp_path):
    large = corpus * np.float32(1e30)  # their squares are beyond float32
    repair_store(isoscope.Center().fit(corpus), large, tmp_path / "a.npy")
    assert np.isfinite(np.load(tmp_path / "a.npy")).all()


def test_what_cannot_be_done_is_said_before_anything_is_written(corpus, source, tmp_path):
    repair = isoscope.Center().fit(corpus)
    (tmp_path / "folder.npy").mkdir()
    before = names(tmp_path)
    for target, message in (
        ("a.csv", "does not say a format"),
        ("no/a.npy", "is not a folder"),
        ("folder.npy", "is a folder"),
        ("corpus.npy", "is what is read"),
    ):
        with pytest.raises(InputError, match=message):
            repair_store(repair, source, tmp_path / target)
    with pytest.raises(InputError, match="array has 3 dimensions, the Center was fitted to 8"):
        repair_store(repair, corpus[:, :3], tmp_path / "a.npy")
    with pytest.raises(ValueError, match="not fitted"):
        repair_store(isoscope.Center(), source, tmp_path / "a.npy")
    assert names(tmp_path) == before


def test_a_link_stays_one_and_permissions_stay(corpus, source, tmp_path):
    (tmp_path / "far").mkdir()
    real, link = tmp_path / "far" / "real.npy", tmp_path / "link.npy"
    real.write_bytes(b"old")
    real.chmod(0o600)
    link.symlink_to(real)
    repair_store(isoscope.Center().fit(corpus), source, link)
    assert link.is_symlink()
    assert np.load(real).shape == (N, D)
    assert real.stat().st_mode & 0o777 == 0o600
    assert names(tmp_path / "far") == ["real.npy"]


SLOW = """
import sys, time, isoscope
from isoscope.transforms import apply as applying
import isoscope.stores.store
isoscope.stores.store._BATCH_BYTES, applying._MARK_BYTES = 20 * 4 * 8, -1
repair, source, path = isoscope.load_transform(sys.argv[1]), sys.argv[2], sys.argv[3]

def slowly(stage, rows, share):
    print(rows, flush=True)
    if rows >= 160:
        time.sleep(60)

isoscope.repair_store(repair, source, path, progress=slowly)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs POSIX")
@each_ending
@pytest.mark.usefixtures("_many_batches")
def test_a_killed_process_is_gone_on_with_and_two_at_once_are_refused(ending, corpus, source, tmp_path):
    repair = isoscope.Whiten().fit(corpus)
    repair.save(tmp_path / "repair")
    path, whole = tmp_path / f"out{ending}", tmp_path / f"whole{ending}"
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(tmp_path / "repair"), str(source), str(path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert any(line.strip() == "160" for line in process.stdout)
        with pytest.raises(InputError, match="is being written by another process: wait until it is done, or end it"):
            repair_store(repair, source, path)
    finally:
        process.kill()
        process.communicate()
    assert not path.exists()
    told = []
    repair_store(repair, source, path, say=told.append)
    assert told == ["going on from row 140, where an earlier run was interrupted"]
    repair_store(repair, source, whole)
    if ending == ".parquet":
        assert pq.read_table(path).equals(pq.read_table(whole))
    else:
        assert path.read_bytes() == whole.read_bytes()
    assert names(tmp_path) == sorted(["corpus.npy", path.name, "repair", whole.name])


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="the limit on file sizes is POSIX's")
@each_ending
def test_a_real_write_error_is_gone_on_with(ending, corpus, source, tmp_path):
    isoscope.Center().fit(corpus).save(tmp_path / "repair")
    path = tmp_path / f"out{ending}"
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))\n"
    ended = subprocess.run(
        [sys.executable, "-c", limit + SLOW.replace("160", "999"), str(tmp_path / "repair"), str(source), str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "File too large" in ended.stderr
    assert "run the same command again to go on from row" in ended.stderr
    assert not path.exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("isoscope.stores.store._BATCH_BYTES", 20 * 4 * D)
        assert repair_store(isoscope.load_transform(tmp_path / "repair"), source, path) == N
    np.testing.assert_array_equal(read(path), isoscope.load_transform(tmp_path / "repair").transform(corpus))


def test_a_repair_that_cannot_be_saved_is_applied_all_the_same(corpus, source, tmp_path):
    from sklearn.cluster import KMeans

    repair = isoscope.ClusterCenter(clusterer=KMeans(3, random_state=0)).fit(corpus)
    with pytest.raises(Stop):
        repair_store(repair, source, tmp_path / "out.npy", progress=stopping(1))
    assert names(tmp_path) == ["corpus.npy"]
    repair_store(repair, source, tmp_path / "out.npy")
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), repair.transform(corpus), atol=1e-5)


def test_ids_that_some_rows_lack_are_done_without(tmp_path):
    source, path = tmp_path / "a.jsonl", tmp_path / "a.parquet"
    source.write_text("".join(f'{{"v": [{i}, 1], "id": {i if i != 7 else "null"}, "text": "t"}}\n' for i in range(9)))
    repair = isoscope.Center().fit(source)
    assert repair_store(repair, source, path) == 9
    assert dict(open_store(path).columns) == {"text": "text"}
    assert names(tmp_path) == ["a.jsonl", "a.parquet"]
