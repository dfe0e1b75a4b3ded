"""Repairs written to a folder: the parts contain the repaired store, and an interrupted run resumes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

import isoscope
from isoscope._core.errors import OutputError
from isoscope._io.runs import RunFolder
from isoscope.stores import store as whole_stores
from isoscope.stores.open import open_store
from isoscope.stores.shards import spans as cut
from isoscope.transforms import folder as parts

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
    """Set the size of a part to 1,000 rows."""
    monkeypatch.setattr(whole_stores, "_MOST_ROWS", 500)
    monkeypatch.setattr(parts, "spans", partial(cut, max_bytes=1000 * D * 4))


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
def test_parts_contain_the_repaired_vectors(source, vectors, tmp_path, repair):
    repair.fit(vectors)
    assert isoscope.repair_store(source, repair, tmp_path / "out") == ROWS
    assert len([*(tmp_path / "out").glob("part-*.npy")]) == 6
    np.testing.assert_allclose(whole(tmp_path / "out"), repair.transform(vectors), rtol=1e-5, atol=1e-6)


def test_table_has_the_columns_of_all_shards(tmp_path, vectors):
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
        isoscope.repair_store(tmp_path / "in", repair, tmp_path / target)
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
    isoscope.repair_store(store, isoscope.Center().fit(vectors), tmp_path / "out")
    written = [pq.read_table(path) for path in sorted((tmp_path / "out").glob("part-*"))]
    assert pa.concat_tables(written).column("price").to_pylist() == table.column("price").to_pylist()


def test_parts_of_another_split_raise(source, vectors, tmp_path, monkeypatch):
    """Some rows would be duplicated and others missing."""
    repair = isoscope.Center().fit(vectors)
    with pytest.raises(KeyboardInterrupt):
        isoscope.repair_store(source, repair, tmp_path / "out", progress=interrupt(0.3))
    monkeypatch.setattr(whole_stores, "_MOST_ROWS", 370)
    with pytest.raises(isoscope.InputError, match="--restart"):
        isoscope.repair_store(source, repair, tmp_path / "out")
    assert isoscope.repair_store(source, repair, tmp_path / "out", restart=True) == ROWS
    np.testing.assert_allclose(whole(tmp_path / "out"), repair.transform(vectors), atol=1e-6)


def test_invalid_row_is_reported_by_its_number_in_the_source(source, vectors, tmp_path):
    repair = isoscope.Center().fit(vectors)
    vectors[4321] = np.nan
    np.save(source, vectors)
    with pytest.raises(isoscope.InputError, match=r"row 4321 of a\.npy"):
        isoscope.repair_store(source, repair, tmp_path / "out")


def test_guessed_ids_may_be_missing_if_they_are_not_written(tmp_path, vectors):
    lines = [json.dumps({"embedding": row, "id": i if i else None}) for i, row in enumerate(vectors[:50].tolist())]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    assert isoscope.repair_store(tmp_path / "a.jsonl", isoscope.Center().fit(vectors), tmp_path / "out") == 50


def test_parts_are_read_in_the_order_of_their_numbers(tmp_path):
    repair = isoscope.Center().fit(np.eye(2, 2) - 0.5)
    for number in (0, 9, 10, 99_999, 100_000):
        job = parts._PartJob(lambda *_: 0, repair, RunFolder(tmp_path, "", "", parts=()), ".npy", False)
        np.save(tmp_path / job.name(number), np.full((1, 2), number, np.float32))
    assert whole(tmp_path)[:, 0].tolist() == [0, 9, 10, 99_999, 100_000]


# interruptions


SCRIPT = """
import sys, time
from functools import partial
import isoscope
from isoscope._core.errors import OutputError
from isoscope._io.runs import RunFolder
from isoscope.stores import store as whole_stores
from isoscope.stores.shards import spans
from isoscope.transforms import folder as parts

whole_stores._MOST_ROWS = 500
parts.spans = partial(spans, max_bytes=1000 * 8 * 4)

def stop(stage, rows, share):
    print(rows, flush=True)
    sys.stdin.readline()  # the test writes or closes it

isoscope.repair_store(sys.argv[2], isoscope.load_transform(sys.argv[1]), sys.argv[3], progress=stop)
"""


@pytest.fixture
def running(source, vectors, tmp_path):
    """A process that has written a part and is writing the others."""
    isoscope.Center().fit(vectors).save(tmp_path / "repair")
    words = [sys.executable, "-c", SCRIPT, str(tmp_path / "repair"), str(source), str(tmp_path / "out")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, **pipes, env=environment) as process:
        try:
            assert process.stdout.readline() == "1000\n"
            yield process
        finally:
            process.kill()


def test_killed_run_resumes(running, source, vectors, tmp_path):
    running.kill()
    running.wait()
    (tmp_path / "out" / ".part-00004.npy.0123456789abcdef.part").write_bytes(b"half")
    repair, said = isoscope.load_transform(tmp_path / "repair"), []
    assert isoscope.repair_store(source, repair, tmp_path / "out", say=said.append) == ROWS
    assert "resuming after" in said[0]
    assert isoscope.repair_store(source, repair, tmp_path / "out", say=said.append) == ROWS
    assert len(said) == 1  # nothing was interrupted the second time
    assert not [*(tmp_path / "out").glob(".*")]
    np.testing.assert_allclose(whole(tmp_path / "out"), repair.transform(vectors), atol=1e-6)


def test_second_process_raises(running, source, tmp_path):
    for restart in (False, True):
        with pytest.raises(isoscope.InputError, match="being written by another process"):
            isoscope.repair_store(
                source, isoscope.load_transform(tmp_path / "repair"), tmp_path / "out", restart=restart
            )
    running.communicate(timeout=600)
    assert running.returncode == 0


def test_original_error_is_raised_if_folder_cannot_be_removed(source, vectors, tmp_path, monkeypatch):
    def left_behind(repair, store, path, columns):
        (path.parent / "other.txt").write_text("of somebody else")
        raise isoscope.InputError("the error")

    monkeypatch.setattr("isoscope.transforms.apply._write_file", left_behind)
    with pytest.raises(isoscope.InputError, match="the error"):
        isoscope.repair_store(source, isoscope.Center().fit(vectors), tmp_path / "out")


# existing folders


def test_folder_with_only_a_temporary_file_counts_as_new(source, vectors, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "._repaired.json.0123456789abcdef.part").touch()
    assert isoscope.repair_store(source, isoscope.Center().fit(vectors), tmp_path / "out") == ROWS
    assert not [*(tmp_path / "out").glob(".*")]


def test_symlink_to_folder_is_followed_and_to_source_raises(source, vectors, tmp_path):
    repair = isoscope.Center().fit(vectors)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert isoscope.repair_store(source, repair, tmp_path / "link") == ROWS
    assert (tmp_path / "real" / "part-00005.npy").exists()
    (tmp_path / "back").symlink_to(tmp_path)
    with pytest.raises(isoscope.InputError, match="contains the source"):
        isoscope.repair_store(source, repair, tmp_path / "back")


@pytest.mark.parametrize("where", ["a file", "no/such/folder/out"])
def test_invalid_folders_raise_one_line_error(source, vectors, tmp_path, where):
    (tmp_path / "a file").touch()
    with pytest.raises(isoscope.InputError, match=r"is a file|is not a folder") as told:
        isoscope.repair_store(source, isoscope.Center().fit(vectors), tmp_path / where)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("change", [{"about": 3}, {"about": ["x"]}, {"parts": None}, {"schema": "x" * 5000}])
def test_damaged_manifest_raises_one_line_error(source, vectors, tmp_path, change):
    repair = isoscope.Center().fit(vectors)
    isoscope.repair_store(source, repair, tmp_path / "out")
    path = tmp_path / "out" / "_repaired.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(isoscope.InputError, match=r"_repaired\.json cannot be read|different settings") as told:
        isoscope.repair_store(source, repair, tmp_path / "out")
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 600


def test_manifest_that_is_not_utf8_is_incomplete(source, vectors, tmp_path):
    isoscope.repair_store(source, isoscope.Center().fit(vectors), tmp_path / "out")
    (tmp_path / "out" / "_repaired.json").write_bytes(b"\xa0")
    with pytest.warns(isoscope.DataWarning, match="is incomplete"):
        open_store(tmp_path / "out")


def test_an_existing_folder_may_have_a_dot_in_its_name(source, vectors, tmp_path):
    (tmp_path / "vectors-1.5").mkdir()
    assert isoscope.repair_store(source, isoscope.Center().fit(vectors), tmp_path / "vectors-1.5") == ROWS


def recorded(source, **changed):
    """Return the manifest that an earlier version of isoscope wrote for `Center().fit(source)`, three parts done."""
    stat = source.stat()
    about = {
        "source": [[str(source), stat.st_size, stat.st_mtime_ns]],
        "vectors": [None, D, "<f4"],
        "format": "parts",
        "columns": {},
        "version": isoscope.__version__,
    }
    manifest = {"schema": "isoscope.repaired/1", "about": about, "parts": [1000] * 6, "ending": ".npy"}
    return {**manifest, "finished": False, **changed}


def test_folder_of_earlier_version_resumes_or_raises(source, vectors, tmp_path):
    from isoscope.transforms.apply import _digest

    repair, folder, said = isoscope.Center().fit(vectors), tmp_path / "out", []
    folder.mkdir()
    for number in range(3):
        np.save(folder / f"part-{number:05}.npy", np.full((1000, D), number, np.float32))
    manifest = recorded(source)
    manifest["about"]["repair"] = _digest(repair)
    (folder / "_repaired.json").write_text(json.dumps(manifest, indent=2) + "\n")
    assert isoscope.repair_store(source, repair, folder, say=said.append) == ROWS
    assert ["3 of 6" in words for words in said] == [True]
    assert whole(folder)[:3000, 0].tolist() == np.repeat([0, 1, 2], 1000).tolist()  # kept as they were
    np.testing.assert_allclose(whole(folder)[3000:], repair.transform(vectors)[3000:], atol=1e-6)
    (folder / "_repaired.json").write_text(json.dumps(recorded(source, about=None)))
    with pytest.raises(OutputError, match=r"cannot be resumed.*--restart"):
        isoscope.repair_store(source, repair, folder)


def test_changed_settings_are_named(source, vectors, tmp_path):
    isoscope.repair_store(source, isoscope.Center().fit(vectors), tmp_path / "out")
    with pytest.raises(OutputError, match="the repair is different; choose another folder"):
        isoscope.repair_store(source, isoscope.Standardize().fit(vectors), tmp_path / "out")
    os.utime(source, ns=(1, 1))
    with pytest.raises(OutputError, match="files changed; choose another folder"):
        isoscope.repair_store(source, isoscope.Center().fit(vectors), tmp_path / "out")
