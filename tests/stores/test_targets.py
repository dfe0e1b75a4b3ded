"""A file that was marked and gone on with is the file that was written at once."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from isoscope.stores.open import open_store
from isoscope.stores.store import Batch
from isoscope.stores.targets import Checkpoint
from isoscope.stores.write import open_target, write_store

ROWS, D = 40, 5
VECTORS = np.random.default_rng(3).standard_normal((10 * ROWS, D)).astype(np.float32)
each_ending = pytest.mark.parametrize("ending", [".npy", ".safetensors", ".parquet"])


def batches():
    for start in range(0, len(VECTORS), ROWS):
        part = slice(start, start + ROWS)
        columns = {
            "n": np.arange(start, start + ROWS),
            "s": np.array([f"row {i}" for i in range(*part.indices(400))], object),
        }
        yield Batch(start, VECTORS[part], columns, 1.0)


def begun(path, mark=None):
    return open_target(path, path.suffix, next(batches()), None, mark or Checkpoint())


def finished(target, rest):
    for batch in rest:
        target.write(batch)
    target.finish()
    target.close()


@each_ending
@pytest.mark.parametrize("marks", [(), (0,), (3,), (0, 1, 2, 3, 4, 5, 6, 7, 8, 9), (2, 2, 9)])
def test_marks_change_nothing(ending, marks, tmp_path):
    plain, path = tmp_path / f"plain{ending}", tmp_path / f"a{ending}"
    finished(begun(plain), batches())
    target, mark = begun(path), Checkpoint()
    for i, batch in enumerate(batches()):
        target.write(batch)
        for _ in range(marks.count(i)):
            mark = target.mark()
            assert mark.rows == (i + 1) * ROWS
        if i in marks:  # as another process would go on, with something half written behind the mark
            target.close()
            with path.open("ab") as file:
                file.write(b"half a row")
            target = begun(path, mark)
            assert target.rows == (i + 1) * ROWS
    target.finish()
    target.close()
    if ending == ".parquet":
        assert pq.read_table(path).equals(pq.read_table(plain))
        assert pq.ParquetFile(path).metadata.num_row_groups == 10
        np.testing.assert_array_equal(open_store(path).take([399, 7, 200]), VECTORS[[399, 7, 200]])
    else:
        assert path.read_bytes() == plain.read_bytes()
    np.testing.assert_array_equal(open_store(path).take(range(400)), VECTORS)


def test_rows_half_written_are_forgotten(tmp_path, monkeypatch):
    path = tmp_path / "a.npy"
    target = begun(path)
    given = list(batches())
    target.write(given[0])
    real = target._file.write

    def full(data):
        real(memoryview(data).cast("B")[:300])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(target._file, "write", full)
    with pytest.raises(OSError, match="No space left"):
        target.write(given[1])
    monkeypatch.undo()
    assert target.mark().rows == ROWS
    finished(target, given[1:])
    np.testing.assert_array_equal(np.load(path), VECTORS)


def test_rows_may_be_put_in_any_order(tmp_path):
    path, plain = tmp_path / "a.npy", tmp_path / "plain.npy"
    target = begun(path)
    for batch in list(batches())[::-1]:
        target.put(batch.start, batch.vectors)
    target.rows = 200
    assert target.mark().rows == 200  # what stands behind them is not forgotten
    target.rows = 400
    finished(target, [])
    finished(begun(plain), batches())
    assert path.read_bytes() == plain.read_bytes()


def test_a_row_group_half_written_takes_the_rows_since_the_mark_along(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    target, given = begun(path), list(batches())
    target.write(given[0])
    target.mark()
    target.write(given[1])
    real = pq.ParquetWriter.write_batch

    def interrupted(self, *args, **more):
        real(self, *args, **more)
        raise KeyboardInterrupt

    monkeypatch.setattr(pq.ParquetWriter, "write_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        target.write(given[2])
    monkeypatch.undo()
    assert target.mark().rows == ROWS
    finished(target, given[1:])
    np.testing.assert_array_equal(open_store(path).take(range(400)), VECTORS)


def test_other_readers_read_joined_parts(tmp_path):
    pl = pytest.importorskip("polars")
    path = tmp_path / "a.parquet"
    target = begun(path)
    for batch in batches():
        target.write(batch)
        target.mark()
    target.finish()
    target.close()
    frame = pl.read_parquet(path)
    assert frame["n"].to_list() == list(range(400))
    assert frame.filter(pl.col("n") == 333)["s"].to_list() == ["row 333"]  # by the statistics of the row groups
    assert pl.scan_parquet(path).filter(pl.col("n") > 390).collect().height == 9
    assert pq.read_table(path, filters=[("n", "=", 250)])["s"].to_pylist() == ["row 250"]


def test_a_store_written_at_once_is_parquet_like_any_other(tmp_path):
    write_store(tmp_path / "a.parquet", VECTORS)
    assert (tmp_path / "a.parquet").read_bytes()[:4] == b"PAR1"
    assert pq.ParquetFile(tmp_path / "a.parquet").metadata.num_row_groups == 1
