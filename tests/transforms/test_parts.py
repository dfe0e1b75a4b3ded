"""A repair into a folder: the parts are the store, whoever writes them, whatever comes between, whatever is there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

import isoscope
from isoscope.stores import store as whole_stores
from isoscope.stores.open import open_store
from isoscope.stores.shards import spans as cut
from isoscope.transforms import parts

ROWS, D = 6000, 8


@pytest.fixture
def vectors(rng):
    return rng.standard_normal((ROWS, D)).astype(np.float32) + 1


@pytest.fixture
def source(vectors, tmp_path):
    np.save(tmp_path / "a.npy", vectors)
    return tmp_path / "a.npy"


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Of 1,000 rows."""
    monkeypatch.setattr(whole_stores, "_MOST_ROWS", 500)
    monkeypatch.setattr(parts, "spans", partial(cut, most_bytes=1000 * D * 4))


def interrupt(after):
    def progress(stage, rows, share):
        if share >= after:
            raise KeyboardInterrupt

    return progress


def whole(folder):
    return np.concatenate([*open_store(folder).chunks()])


@pytest.mark.parametrize(
    "repair",
    [
        isoscope.Center(),
        isoscope.Whiten(method="pca", n_components=3),
        isoscope.ClusterCenter(3, random_state=0),
        isoscope.Chain([isoscope.Standardize(), isoscope.AllButTheTop(1)]),
    ],
    ids=lambda repair: type(repair).__name__,
)
def test_the_parts_are_what_the_repair_gives(source, vectors, tmp_path, repair):
    repair.fit(vectors)
    assert isoscope.repair_store(repair, source, tmp_path / "out") == ROWS
    assert len([*(tmp_path / "out").glob("part-*.npy")]) == 6
    np.testing.assert_allclose(whole(tmp_path / "out"), repair.transform(vectors), rtol=1e-5, atol=1e-6)


def test_a_table_is_written_with_the_columns_of_all_shards(tmp_path, vectors):
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "in").mkdir()
    rows = np.arange(3000)
    first = {"embedding": list(vectors[:3000]), "x": rows}
    second = {"embedding": list(vectors[3000:]), "x": rows * 0.5, "more": [str(row) for row in rows]}
    for i, columns in enumerate((first, second)):
        pq.write_table(pa.table(columns), tmp_path / "in" / f"{i}.parquet", row_group_size=1000)
    repair = isoscope.Center().fit(vectors)
    for target in ("one.parquet", "many"):
        isoscope.repair_store(repair, tmp_path / "in", tmp_path / target)
    one = pq.read_table(tmp_path / "one.parquet")
    many = [pq.read_table(path) for path in sorted((tmp_path / "many").glob("part-*"))]
    assert {str(part.schema.remove_metadata()) for part in many} == {str(one.schema.remove_metadata())}
    assert pa.concat_tables(many).equals(one.combine_chunks())


@pytest.mark.parametrize("kind", ["pyarrow", "pandas"])
def test_a_table_in_memory_keeps_its_columns(tmp_path, vectors, kind):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"embedding": list(vectors), "price": np.arange(ROWS) * 1.5})
    store = open_store(table if kind == "pyarrow" else table.to_pandas())
    isoscope.repair_store(isoscope.Center().fit(vectors), store, tmp_path / "out")
    written = [pq.read_table(path) for path in sorted((tmp_path / "out").glob("part-*"))]
    assert pa.concat_tables(written).column("price").to_pylist() == table.column("price").to_pylist()


def test_what_a_limit_of_memory_would_cut_elsewhere_is_not_mixed(source, vectors, tmp_path, monkeypatch):
    """Rows would be there twice, and others not at all."""
    repair = isoscope.Center().fit(vectors)
    with pytest.raises(KeyboardInterrupt):
        isoscope.repair_store(repair, source, tmp_path / "out", progress=interrupt(0.3))
    monkeypatch.setattr(whole_stores, "_MOST_ROWS", 370)
    with pytest.raises(isoscope.InputError, match="--restart"):
        isoscope.repair_store(repair, source, tmp_path / "out")
    assert isoscope.repair_store(repair, source, tmp_path / "out", restart=True) == ROWS
    np.testing.assert_allclose(whole(tmp_path / "out"), repair.transform(vectors), atol=1e-6)


def test_a_row_that_cannot_be_repaired_has_the_number_that_the_source_gives_it(source, vectors, tmp_path):
    repair = isoscope.Center().fit(vectors)
    vectors[4321] = np.nan
    np.save(source, vectors)
    with pytest.raises(isoscope.InputError, match=r"row 4321 of a\.npy"):
        isoscope.repair_store(repair, source, tmp_path / "out")


def test_ids_that_nobody_asked_for_and_that_are_not_written_may_lack(tmp_path, vectors):
    lines = [json.dumps({"embedding": row, "id": i if i else None}) for i, row in enumerate(vectors[:50].tolist())]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    assert isoscope.repair_store(isoscope.Center().fit(vectors), tmp_path / "a.jsonl", tmp_path / "out") == 50


def test_shards_come_back_in_the_order_of_their_rows_whatever_their_number(tmp_path):
    repair = isoscope.Center().fit(np.eye(2, 2) - 0.5)
    for number in (0, 9, 10, 99_999, 100_000):
        work = parts._PartJob(lambda *_: 0, repair, tmp_path, ".npy", False)
        np.save(work.path(number), np.full((1, 2), number, np.float32))
    assert whole(tmp_path)[:, 0].tolist() == [0, 9, 10, 99_999, 100_000]


# what comes between


SCRIPT = """
import sys, time
from functools import partial
import isoscope
from isoscope.stores import store as whole_stores
from isoscope.stores.shards import spans
from isoscope.transforms import parts

whole_stores._MOST_ROWS = 500
parts.spans = partial(spans, most_bytes=1000 * 8 * 4)

def slowly(stage, rows, share):
    print(rows, flush=True)
    time.sleep(0.2)

isoscope.repair_store(isoscope.load_transform(sys.argv[1]), sys.argv[2], sys.argv[3], progress=slowly)
"""


@pytest.fixture
def running(source, vectors, tmp_path):
    """A process that has written a part and is at the others."""
    isoscope.Center().fit(vectors).save(tmp_path / "repair")
    words = [sys.executable, "-c", SCRIPT, str(tmp_path / "repair"), str(source), str(tmp_path / "out")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout.readline() == "1000\n"
            yield process
        finally:
            process.kill()


def test_a_process_that_is_killed_is_gone_on_with(running, source, vectors, tmp_path):
    running.kill()
    running.wait()
    (tmp_path / "out" / ".part-00004.npy.0123456789abcdef.part").write_bytes(b"half")
    repair, said = isoscope.load_transform(tmp_path / "repair"), []
    assert isoscope.repair_store(repair, source, tmp_path / "out", say=said.append) == ROWS
    assert "going on behind" in said[0]
    assert isoscope.repair_store(repair, source, tmp_path / "out", say=said.append) == ROWS
    assert len(said) == 1  # nothing was interrupted the second time
    assert not [*(tmp_path / "out").glob(".*")]
    np.testing.assert_allclose(whole(tmp_path / "out"), repair.transform(vectors), atol=1e-6)


def test_two_at_once_are_one_too_many(running, source, tmp_path):
    for restart in (False, True):
        with pytest.raises(isoscope.InputError, match="being written by another process"):
            isoscope.repair_store(
                isoscope.load_transform(tmp_path / "repair"), source, tmp_path / "out", restart=restart
            )
    running.send_signal(signal.SIGCONT)
    assert running.wait(timeout=20) == 0


def test_a_folder_that_another_still_writes_to_hides_no_error(source, vectors, tmp_path, monkeypatch):
    def left_behind(repair, part, path, columns):
        (path.parent / "other.txt").write_text("of somebody else")
        raise isoscope.InputError("the error")

    monkeypatch.setattr("isoscope.transforms.apply._write_part", left_behind)
    with pytest.raises(isoscope.InputError, match="the error"):
        isoscope.repair_store(isoscope.Center().fit(vectors), source, tmp_path / "out")


# what is there


def test_a_folder_that_a_killed_process_had_only_begun_is_begun_anew(source, vectors, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "._repaired.json.0123456789abcdef.part").touch()
    assert isoscope.repair_store(isoscope.Center().fit(vectors), source, tmp_path / "out") == ROWS
    assert not [*(tmp_path / "out").glob(".*")]


def test_a_link_to_a_folder_is_followed_and_one_to_the_source_is_refused(source, vectors, tmp_path):
    repair = isoscope.Center().fit(vectors)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert isoscope.repair_store(repair, source, tmp_path / "link") == ROWS
    assert (tmp_path / "real" / "part-00005.npy").exists()
    (tmp_path / "back").symlink_to(tmp_path)
    with pytest.raises(isoscope.InputError, match="is what is read"):
        isoscope.repair_store(repair, source, tmp_path / "back")


@pytest.mark.parametrize("where", ["a file", "no/such/folder/out"])
def test_what_cannot_be_a_folder_is_a_line(source, vectors, tmp_path, where):
    (tmp_path / "a file").touch()
    with pytest.raises(isoscope.InputError, match=r"is a file|is not a folder") as told:
        isoscope.repair_store(isoscope.Center().fit(vectors), source, tmp_path / where)
    assert "\n" not in str(told.value)


def test_a_name_with_a_point_that_is_a_folder_is_one(source, vectors, tmp_path):
    (tmp_path / "vectors-1.5").mkdir()
    assert isoscope.repair_store(isoscope.Center().fit(vectors), source, tmp_path / "vectors-1.5") == ROWS
