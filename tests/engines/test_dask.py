"""Dask gives the results of one machine, for any number of workers and after failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import isoscope
from isoscope.engines.engine import LocalEngine, SketchTally, open_engine
from isoscope.stores.open import open_store
from isoscope.stores.shards import spans as cut
from isoscope.transforms import folder as parts

distributed = pytest.importorskip("distributed", reason='Dask is not installed: pip install "isoscope[dask]"')

from isoscope.engines import dask  # noqa: E402

ROWS, D, SHARDS = 24_000, 16, 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Parquet shards with clusters, a few types, labels, and layers that span several shards."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("shards")
    codes = rng.integers(0, 4, ROWS)
    X = (rng.standard_normal((ROWS, D)) / np.sqrt(np.arange(1, D + 1)) + 3 * np.eye(4, D)[codes] + 0.5).astype("f4")
    for i, rows in enumerate(np.array_split(np.arange(ROWS), SHARDS)):
        table = {
            "embedding": pa.FixedSizeListArray.from_arrays(X[rows].ravel(), D),
            "label": codes[rows],
            "token": [f"t{k}" for k in rows % 300],
            "layer": np.sort(rng.integers(0, 3, len(rows))),
        }
        pq.write_table(pa.table(table), path / f"part-{i:02}.parquet", row_group_size=1000)
    return path


@pytest.fixture(autouse=True)
def small_spans(monkeypatch):
    """Many tasks, as a large store has."""
    monkeypatch.setattr(dask, "_SPANS", ROWS // 1500)
    monkeypatch.setattr(dask, "_MIN_SPAN_BYTES", 1)
    monkeypatch.setattr(parts, "spans", partial(cut, max_bytes=1500 * D * 4))


def same(found, expected, rel=1e-6):
    """Check that all numbers of two audits, including intervals, agree within the tolerance of docs/scale.md."""
    assert [f.name for f in found.findings] == [f.name for f in expected.findings]
    for one, other in zip(found.findings, expected.findings, strict=True):
        assert one.verdict == other.verdict
        near = 10 * rel if one.name == "two_nn" else rel  # the logarithm of two nearly equal distances' ratio
        for number in ("value", "low", "high"):
            mine, theirs = getattr(one, number), getattr(other, number)
            assert mine == theirs or mine == pytest.approx(theirs, rel=near, abs=1e-12, nan_ok=True), one.name


def test_audit_equals_local_audit(folder, client):
    here = isoscope.audit(folder, sample=2000)
    there = isoscope.audit(folder, sample=2000, engine=client)
    same(there, here)
    np.testing.assert_array_equal(there.measured.sample.rows, here.measured.sample.rows)
    np.testing.assert_array_equal(there.measured.sample.vectors, here.measured.sample.vectors)
    np.testing.assert_array_equal(there.measured.around.indices, here.measured.around.indices)
    assert there.measured.sketch.n == ROWS
    assert there.measured.types.names.tolist() == here.measured.types.names.tolist()


def test_number_of_workers_does_not_change_any_bit(folder, client):
    one = isoscope.sketch(folder, engine=client)
    with open_engine("dask") as threads:
        assert isoscope.sketch(folder, engine=threads) == one
    same_again = isoscope.sketch(folder, engine=client)
    assert same_again == one


def test_groups_equal_local_groups(folder, client):
    here = isoscope.audit(folder, by="layer", sample=500)
    there = isoscope.audit(folder, by="layer", sample=500, engine=client)
    assert list(there.groups) == list(here.groups) == ["0", "1", "2"]
    for name in here.groups:
        same(there[name], here[name])
        np.testing.assert_array_equal(there[name].measured.sample.vectors, here[name].measured.sample.vectors)


def test_queries_and_given_columns_are_sent_to_workers(folder, client, rng):
    labels = np.arange(ROWS) % 3
    queries = rng.standard_normal((50, D)).astype(np.float32)
    here, there = (
        isoscope.audit(folder, labels=labels, queries=queries, sample=500, engine=engine)
        for engine in ("local", client)
    )
    same(there, here)
    np.testing.assert_array_equal(there.measured.sample.columns["labels"], here.measured.sample.columns["labels"])


def test_array_is_sent_to_workers(client, rng):
    X = rng.standard_normal((5000, D)) + 1
    same(isoscope.audit(X, engine=client, sample=500), isoscope.audit(X, sample=500))


def test_sample_is_redrawn_when_too_few_rows_are_finite(client, rng):
    X = rng.standard_normal((6000, D))
    X[rng.random(6000) < 0.6] = np.nan
    here, there = (
        isoscope.audit(X, sample=1500, missing="drop", engine=engine).measured.sample for engine in ("local", client)
    )
    np.testing.assert_array_equal(there.rows, here.rows)


@pytest.mark.parametrize(
    "repair",
    [
        isoscope.Whiten(),
        isoscope.AllButTheTop(2),
        isoscope.ClusterNull(4, 1, sample=3000, random_state=0),
        isoscope.Chain([isoscope.Standardize(), isoscope.Whiten()]),
    ],
    ids=lambda repair: type(repair).__name__,
)
def test_fits_equal_local_fits(folder, client, repair, rng):
    from sklearn.base import clone

    X = rng.standard_normal((20, D)).astype(np.float32)
    here, there = clone(repair).fit(folder), clone(repair).fit(folder, engine=client)
    np.testing.assert_allclose(there.transform(X), here.transform(X), rtol=1e-5, atol=1e-6)


class Batches(SketchTally):
    """A sum that records the sizes of its batches."""

    largest = 0

    def add(self, part):
        self.largest = max(self.largest, part if isinstance(part, int) else part.n)

    def partial_result(self):
        return self.largest

    join = add


def test_workers_respect_memory_limit(client, tmp_path, monkeypatch):
    monkeypatch.setattr(dask, "_MIN_SPAN_BYTES", 2**27)
    np.save(tmp_path / "a.npy", np.zeros((60_000, 200), np.float32))
    free = dask.DaskEngine(client).tally(Batches(), open_store(tmp_path / "a.npy")).largest
    with isoscope.memory_limit("230MB"):
        bound = dask.DaskEngine(client).tally(Batches(), open_store(tmp_path / "a.npy")).largest
    assert bound < free / 4


class Slow(SketchTally):
    """A slow sum that reports the process that computes it."""

    def summarize(self, item):
        time.sleep(0.05)
        return super().summarize(item)


@pytest.mark.heavy
def test_killed_worker_does_not_change_result(folder, client):
    expected = LocalEngine().tally(SketchTally(), open_store(folder)).total
    pids = list(client.run(os.getpid).values())
    assert len(set(pids)) == 2
    assert os.getpid() not in pids
    done = []

    def progress(stage, rows, share):
        done.append(share)
        if len(done) == 3:
            os.kill(pids[0], signal.SIGKILL)

    found = dask.DaskEngine(client).tally(Slow(), open_store(folder), progress).total
    assert len(done) > 3
    client.wait_for_workers(2, timeout=600)
    assert pids[0] not in client.run(os.getpid).values()  # it did die
    assert found.n == ROWS
    np.testing.assert_allclose(found.scatter, expected.scatter, rtol=1e-12, atol=1e-9)
    assert found == dask.DaskEngine(client).tally(SketchTally(), open_store(folder)).total  # to the last bit


@pytest.mark.parametrize("engine", ["local", "cluster"])
@pytest.mark.parametrize("columns", [True, False])
def test_repair_is_applied_part_by_part(folder, client, tmp_path, engine, columns):
    repair = isoscope.Center().fit(folder)
    isoscope.repair_store(folder, repair, tmp_path / "one.parquet")
    running = client if engine == "cluster" else "local"
    assert isoscope.repair_store(folder, repair, tmp_path / "many", columns=columns, engine=running) == ROWS
    one, many = open_store(tmp_path / "one.parquet"), open_store(tmp_path / "many")
    assert len(list((tmp_path / "many").glob(f"part-*{'.parquet' if columns else '.npy'}"))) > 4
    np.testing.assert_array_equal(many.take(np.arange(ROWS)), one.take(np.arange(ROWS)))
    assert set(many.columns) == (set(one.columns) if columns else set())


def test_finished_parts_are_not_rewritten(folder, client, tmp_path):
    repair = isoscope.Center().fit(folder)

    def stop(stage, rows, share):
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        isoscope.repair_store(folder, repair, tmp_path / "many", engine=client, progress=stop)
    assert "run the same command again" in stopped.value.__notes__[0]
    with pytest.warns(isoscope.DataWarning, match="incomplete"):
        open_store(tmp_path / "many")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "many").glob("part-*")}
    said = []
    assert isoscope.repair_store(folder, repair, tmp_path / "many", engine=client, say=said.append) == ROWS
    assert "resuming after" in said[0]
    assert len(before) >= 3
    assert all(path.stat().st_mtime_ns == time_ for path, time_ in before.items())
    assert isoscope.repair_store(folder, repair, tmp_path / "many", engine=client) == ROWS  # once more is nothing
    other = isoscope.Standardize().fit(folder)
    with pytest.raises(isoscope.InputError, match="the repair is different"):
        isoscope.repair_store(folder, other, tmp_path / "many", engine=client)
    assert isoscope.repair_store(folder, other, tmp_path / "many", engine=client, restart=True) == ROWS


def test_groups_are_resampled_when_too_few_rows_are_finite(client, rng):
    X = rng.standard_normal((6000, D))
    X[rng.random(6000) < 0.6] = np.nan
    store = open_store(X, by=np.arange(6000) % 2)
    here, there = (
        isoscope.audit(store, by="by", sample=500, missing="drop", engine=engine) for engine in ("local", client)
    )
    for name in here.groups:
        np.testing.assert_array_equal(there[name].measured.sample.rows, here[name].measured.sample.rows)


def test_function_defined_in_a_script_is_sent_to_workers(client, rng):
    store = open_store(rng.standard_normal((3000, D))).mapped(lambda rows: 2 * rows, D)
    assert isoscope.sketch(store, engine=client).n == 3000


def test_cluster_is_accepted_as_engine_and_stays_open(client, rng):
    X = rng.standard_normal((3000, D))
    assert isoscope.sketch(X, engine=client.cluster) == isoscope.sketch(X, engine=client)


# what is refused


def test_object_that_cannot_be_pickled_raises(client, rng):
    lock = threading.Lock()
    store = open_store(rng.standard_normal((3000, D))).mapped(lambda rows: lock and rows, D)
    with pytest.raises(isoscope.InputError, match=r"cannot be sent to the workers \(.*lock"):
        isoscope.sketch(store, engine=client)


def test_missing_values_raise_the_same_error_as_locally(tmp_path, client, rng):
    import pyarrow as pa
    import pyarrow.parquet as pq

    for i, missing in enumerate(({}, {17, 99})):
        tokens = [None if row in missing else "a" for row in range(2000)]
        table = pa.table({"embedding": list(rng.standard_normal((2000, D))), "token": tokens})
        pq.write_table(table, tmp_path / f"{i}.parquet", row_group_size=500)
    messages = []
    for engine in ("local", client):
        with pytest.raises(isoscope.InputError) as error:
            isoscope.sketch(tmp_path, types="token", engine=engine)
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert "row 2017" in messages[0]


def test_closed_client_raises(client, rng):
    with distributed.Client(client.cluster, set_as_default=False) as other:
        pass
    with pytest.raises(isoscope.InputError, match="the client is closed"):
        isoscope.sketch(rng.standard_normal((100, 4)), engine=other)


def slowly(item):
    time.sleep(0.3)
    return item


@pytest.mark.heavy
@pytest.mark.parametrize("what", ["tally", "each"])
def test_cluster_without_workers_raises(what, folder, monkeypatch):
    monkeypatch.setattr(dask, "_TIMEOUT", 1.0)
    monkeypatch.setattr(dask, "_WORKER_TIMEOUT", 2.0)
    with lone_worker() as (client, worker):
        killer = threading.Timer(1.0, worker.kill)
        killer.start()
        running = dask.DaskEngine(client)
        with pytest.raises(isoscope.InputError, match="no worker for 2 seconds"):
            running.tally(Slow(), open_store(folder)) if what == "tally" else [*running.each(slowly, range(100))]
        killer.join()


@contextmanager
def lone_worker():
    """A cluster of one worker, which is not restarted."""
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as own,
        distributed.Client(own, set_as_default=False) as client,
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "distributed.cli.dask_worker",
                own.scheduler_address,
                "--no-nanny",
                "--no-dashboard",
            ],
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
        ) as worker,
    ):
        try:
            client.wait_for_workers(1, timeout=600)
            yield client, worker
        finally:
            worker.kill()  # it would wait for its scheduler, and we for it


def test_one_output_file_is_rejected(folder, client, tmp_path):
    with pytest.raises(isoscope.InputError, match="choose a folder"):
        isoscope.repair_store(folder, isoscope.Center().fit(folder), tmp_path / "a.npy", engine=client)


def test_foreign_folder_is_not_touched(folder, client, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "part-00000.npy").write_text("dear diary")
    with pytest.raises(isoscope.InputError, match="contains other files"):
        isoscope.repair_store(folder, isoscope.Center().fit(folder), tmp_path / "mine", restart=True, engine=client)
    assert (tmp_path / "mine" / "part-00000.npy").read_text() == "dear diary"


def test_unreachable_scheduler_raises_one_line(monkeypatch, rng):
    monkeypatch.setattr(dask, "_TIMEOUT", 0.5)
    with pytest.raises(isoscope.InputError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9") as error:
        isoscope.audit(rng.standard_normal((100, 4)), engine="tcp://127.0.0.1:9")
    assert "\n" not in str(error.value)


def test_other_version_on_workers_raises(client, rng, monkeypatch):
    monkeypatch.setattr(isoscope, "__version__", "99.0")
    with pytest.raises(isoscope.InputError, match=r"worker tcp://.* has isoscope .* this process has 99\.0"):
        isoscope.sketch(rng.standard_normal((100, 4)), engine=client)


def test_nonfinite_row_is_named_by_number(client, rng):
    X = rng.standard_normal((6000, D))
    X[4321] = np.nan
    with pytest.raises(isoscope.InputError, match="4321"):
        isoscope.sketch(X, engine=client)


def test_file_missing_on_worker_raises(client, tmp_path, rng):
    np.save(tmp_path / "a.npy", rng.standard_normal((100, 4)))
    store = open_store(tmp_path / "a.npy")
    (tmp_path / "a.npy").rename(tmp_path / "b.npy")
    with pytest.raises(isoscope.InputError, match="all workers need access to the same files"):
        isoscope.sketch(store, engine=client)


@pytest.mark.parametrize("engine", ["spark", None, 3])
def test_unknown_engine_raises(engine, rng):
    with pytest.raises(isoscope.InputError, match="engine is"):
        isoscope.audit(rng.standard_normal((100, 4)), engine=engine)


def test_local_workers_keep_freed_memory(monkeypatch):
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    with open_engine("dask", 1) as engine:
        (environment,) = engine.client.run(lambda: dict(os.environ)).values()
    assert environment["MALLOC_TRIM_THRESHOLD_"] == str(256 * 2**20)
    assert environment["MALLOC_MMAP_THRESHOLD_"] == str(32 * 2**20)
    assert environment["OMP_NUM_THREADS"] == "1"  # Dask's own defaults stay


def test_row_table_equals_local_row_table(folder, client, monkeypatch):
    from isoscope.auditing import row_neighbors

    monkeypatch.setattr(row_neighbors, "MAX_EXACT_ROWS", 1000)
    store = open_store(folder)
    local, remote = (isoscope.audit(store, rows=True, sample=500, engine=engine).rows for engine in ("local", client))
    assert (len(remote), remote.neighbors.exact) == (ROWS, False)
    for name in ("nearest", "group", "occurrences", "is_outlier", "neighbor_label"):
        assert (getattr(remote.neighbors, name) == getattr(local.neighbors, name)).mean() > 0.9999  # ties may differ
    np.testing.assert_allclose(remote.neighbors.lid, local.neighbors.lid, rtol=1e-3)
