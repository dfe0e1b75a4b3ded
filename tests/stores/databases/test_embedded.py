"""Public functions write to databases without a server, resume, and read the rows back."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import isoscope
from isoscope.stores.open import open_store
from isoscope.stores.write import write_store
from tests.services import require

N, D = 600, 8
VECTORS = (np.random.default_rng(2).standard_normal((N, D)) + 1).astype(np.float32)
KINDS = {"qdrant": "qdrant_client", "lancedb": "lancedb", "chroma": "chromadb", "milvus": "milvus_lite"}


@pytest.fixture(params=KINDS)
def kind(request):
    if request.param == "lancedb":
        pytest.importorskip("lancedb")
    else:
        require(KINDS[request.param])
    return request.param


def place(kind, folder, name):
    """Return the addresses to write to and to read from; a cosine collection would change lengths or round them."""
    where = f"{kind}:{folder / kind}{'.db' if kind == 'milvus' else ''}#{name}"
    return (where if kind == "lancedb" else f"{where}?distance=dot"), where


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "docs.parquet"
    columns = {
        "doc_id": [f"doc {i}" for i in range(N)],
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), D),
        "text": [f"text {i}" for i in range(N)],
        "label": [i % 3 for i in range(N)],
    }
    pq.write_table(pa.table(columns), path)
    return path


def rows_of(store):
    """The vectors, texts and labels in the order of ids."""
    order = np.argsort([int(each.split()[1]) for each in store.ids])
    return store.take(order), store.column("text", order).tolist(), store.column("labels", order).tolist()


def test_repairing_twice_writes_rows_once(kind, tmp_path, table):
    repair = isoscope.Center().fit(table)
    target, where = place(kind, tmp_path, "docs")
    said = []
    for _ in range(2):
        assert isoscope.repair_store(table, repair, target, say=said.append) == N
    assert len(said) == 1
    vectors, texts, labels = rows_of(open_store(where))
    np.testing.assert_array_equal(vectors, repair.transform(VECTORS))
    assert texts == [f"text {i}" for i in range(N)]
    assert labels == [i % 3 for i in range(N)]
    with pytest.raises(isoscope.InputError, match="used another repair"):
        isoscope.repair_store(table, isoscope.Standardize().fit(table), target)


def test_only_new_rows_are_written(kind, tmp_path, table):
    lancedb = pytest.importorskip("lancedb")
    source = lancedb.connect(tmp_path / "source").create_table("docs", pq.read_table(table).slice(0, 400))
    where = f"lancedb:{tmp_path}/source#docs"
    repair = isoscope.Center().fit(where)
    target, repaired = place(kind, tmp_path, "repaired")
    assert isoscope.repair_store(where, repair, target) == 400
    source.add(pq.read_table(table).slice(400))
    source.delete("label = 2")
    seen = []
    work = repair.transform
    repair.transform = lambda rows: seen.append(len(rows)) or work(rows)
    assert isoscope.repair_store(where, repair, target) == 400
    assert sum(seen) < 200  # and two rows to look at
    store = open_store(repaired)
    assert sorted(store.ids) == sorted(f"doc {i}" for i in range(N) if i < 400 or i % 3 != 2)


def test_source_is_not_overwritten(kind, tmp_path, table):
    target, where = place(kind, tmp_path, "docs")
    write_store(open_store(table), target)
    with pytest.raises(isoscope.InputError, match="is the source itself"):
        isoscope.repair_store(where, isoscope.Center().fit(where), where)


def test_column_that_equals_the_ids_at_first_is_kept(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("isoscope.stores.store._MOST_ROWS", 2)
    target, where = place(kind, tmp_path, "docs")
    columns = {
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(VECTORS[:5].ravel()), D),
        "label": [0, 1, 2, 3, 9],
    }
    pq.write_table(pa.table(columns), tmp_path / "numbered.parquet")
    assert write_store(tmp_path / "numbered.parquet", target) == 5
    assert sorted(open_store(where).labels.tolist()) == [0, 1, 2, 3, 9]


def test_ids_are_written_once(kind, tmp_path):
    lines = [json.dumps({"id": f"a{i}", "embedding": VECTORS[i].tolist(), "text": f"t{i}"}) for i in range(5)]
    (tmp_path / "docs.jsonl").write_text("\n".join(lines))
    for name, source, ids in (
        ("lines", tmp_path / "docs.jsonl", [f"a{i}" for i in range(5)]),
        ("array", VECTORS[:5], list(range(5))),
    ):
        target, where = place(kind, tmp_path, name)
        assert write_store(open_store(source, text=[f"t{i}" for i in range(5)]), target) == 5
        store = open_store(where)
        assert sorted(store.ids.tolist()) == ids
        record = next(store.batches(other_columns=True)).other_columns
        assert "ids" not in str(record.to_pylist()[0])


@pytest.mark.heavy
def test_killed_run_resumes(kind, tmp_path, table):
    repair = isoscope.Center().fit(table)
    repair.save(tmp_path / "repair")
    target, where = place(kind, tmp_path, "docs")
    run = f"""
import time, isoscope
from isoscope.stores import store
store._MOST_ROWS = 50
def stop(stage, rows, share):
    print(rows, flush=True)
    if rows >= 250:
        time.sleep(600)
repair = isoscope.load_transform({str(tmp_path / "repair")!r})
isoscope.repair_store({str(table)!r}, repair, {target!r}, progress=stop)
"""
    other = subprocess.Popen([sys.executable, "-c", run], stdout=subprocess.PIPE)
    try:
        for line in other.stdout:
            if int(line) >= 250:
                break
    finally:
        other.send_signal(signal.SIGKILL)
        other.communicate()
    with pytest.warns(isoscope.DataWarning, match="is incomplete"):
        assert 0 < len(open_store(where)) < N
    said = []
    assert isoscope.repair_store(table, repair, target, say=said.append) == N
    assert said
    np.testing.assert_array_equal(rows_of(open_store(where))[0], repair.transform(VECTORS))


def test_audit_equals_audit_of_the_file(kind, tmp_path, table):
    target, where = place(kind, tmp_path, "docs")
    write_store(open_store(table), target)
    found, need = (isoscope.audit(source, sample=100) for source in (where, str(table)))
    for name in ("isoscore", "mean_cosine"):
        np.testing.assert_allclose(found[name].value, need[name].value, rtol=1e-7)
    assert found.source == where


@pytest.mark.heavy
def test_other_columns_survive_a_file(kind, tmp_path, table):
    first, where = place(kind, tmp_path, "docs")
    write_store(open_store(table), first)
    assert write_store(open_store(where), tmp_path / "copy.parquet") == N
    second, again = place(kind, tmp_path, "again")
    assert write_store(open_store(tmp_path / "copy.parquet"), second) == N
    for one, other in zip(rows_of(open_store(where)), rows_of(open_store(again)), strict=True):
        np.testing.assert_array_equal(one, other)
