"""Rows with missing values and rows of zeros: one policy for every source and every function."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import isoscope
from isoscope import InputError
from isoscope.cli.main import main
from isoscope.errors import MissingValueError
from isoscope.stores import open_store, write_store

ROWS = 90
WITHOUT_LABEL = {3, 7}
WITHOUT_VECTOR = {0, 50}
COMPLETE = sorted(set(range(ROWS)) - WITHOUT_LABEL - WITHOUT_VECTOR)


@pytest.fixture
def X(rng):
    return (rng.standard_normal((ROWS, 6)) + 0.5).astype(np.float32)


def labels():
    return [None if row in WITHOUT_LABEL else row % 3 for row in range(ROWS)]


def vectors(X):
    return [None if row in WITHOUT_VECTOR else X[row].tolist() for row in range(ROWS)]


def parquet(folder, X):
    table = {"vector": pa.array(vectors(X), pa.list_(pa.float32())), "kind": pa.array(labels())}
    pq.write_table(
        pa.table(table | {"id": [f"d{row}" for row in range(ROWS)]}), folder / "x.parquet", row_group_size=40
    )
    return folder / "x.parquet"


def json_lines(folder, X):
    rows = zip(vectors(X), labels(), strict=True)
    lines = [json.dumps({"vector": vector, "kind": label}) for vector, label in rows]
    (folder / "x.jsonl").write_text("\n".join(lines))
    return folder / "x.jsonl"


def cells(folder, X):
    lines = ["e0,e1,e2,e3,e4,e5,kind"]
    for row, label in enumerate(labels()):
        numbers = ["" if row in WITHOUT_VECTOR and i == 2 else repr(float(v)) for i, v in enumerate(X[row])]
        lines.append(",".join([*numbers, "" if label is None else str(label)]))
    (folder / "x.csv").write_text("\n".join(lines))
    return folder / "x.csv"


def shards(folder, X):
    (folder / "shards").mkdir()
    whole = pq.read_table(parquet(folder, X))
    pq.write_table(whole.slice(0, 30), folder / "shards" / "0.parquet")
    pq.write_table(whole.slice(30), folder / "shards" / "1.parquet")
    return folder / "shards"


def wide(folder, X):
    columns = {
        f"e{i}": [None if row in WITHOUT_VECTOR and i == 1 else float(X[row, i]) for row in range(ROWS)]
        for i in range(6)
    }
    pq.write_table(pa.table(columns | {"kind": labels()}), folder / "wide.parquet")
    return folder / "wide.parquet"


SOURCES = [parquet, json_lines, cells, shards, wide]


@pytest.mark.parametrize("make", SOURCES)
def test_missing_values_raise_an_error_that_names_the_option(tmp_path, X, make):
    path = make(tmp_path, X)
    with pytest.raises(MissingValueError, match="--missing drop"):
        isoscope.audit(path, labels="kind")


@pytest.mark.parametrize("make", SOURCES)
def test_incomplete_rows_are_dropped_and_the_others_keep_their_numbers_and_labels(tmp_path, X, make):
    store = open_store(make(tmp_path, X), labels="kind", missing="drop")
    seen, found = [], []
    for batch in store.batches(["labels"], rows=16):
        finite = np.isfinite(batch.vectors).all(axis=1)
        seen += (batch.start + np.flatnonzero(finite)).tolist()
        found += batch.columns["labels"][finite].tolist()
        np.testing.assert_allclose(batch.vectors[finite], X[batch.start + np.flatnonzero(finite)], rtol=1e-6)
    assert seen == COMPLETE
    assert found == [row % 3 for row in COMPLETE]


@pytest.mark.parametrize("make", SOURCES)
def test_every_function_drops_the_same_rows(tmp_path, X, make):
    path = make(tmp_path, X)
    expected = X[COMPLETE].astype(np.float64)
    audited = isoscope.audit(path, labels="kind", missing="drop")
    assert audited.n == len(COMPLETE)
    assert audited["broken_rows"].details["nonfinite"] == ROWS - len(COMPLETE)
    assert audited["mean_cosine"].value == pytest.approx(float(isoscope.mean_cosine(expected)), abs=1e-6)
    by_group = isoscope.audit(path, by="kind", missing="drop")
    assert [by_group[name].n for name in ("0", "1", "2")] == [sum(row % 3 == k for row in COMPLETE) for k in range(3)]
    store = open_store(path, labels="kind", missing="drop")
    repair = isoscope.Center().fit(store)
    np.testing.assert_allclose(repair.mean_, expected.mean(axis=0), rtol=1e-6)
    assert write_store(store, tmp_path / "out.npy") == len(COMPLETE)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, rtol=1e-6)
    assert isoscope.repair_store(store, repair, tmp_path / "repaired.npy") == len(COMPLETE)
    np.testing.assert_allclose(
        np.load(tmp_path / "repaired.npy"), expected - expected.mean(axis=0), rtol=1e-4, atol=1e-6
    )


def test_other_columns_follow_the_rows_that_are_written(tmp_path, X):
    store = open_store(parquet(tmp_path, X), labels="kind", missing="drop")
    write_store(store, tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").column("id").to_pylist() == [f"d{row}" for row in COMPLETE]


def test_labels_that_are_passed_as_values_may_be_missing(X):
    with pytest.raises(InputError, match="2 of 90 rows"):
        isoscope.audit(X, labels=labels())
    found = isoscope.audit(X, labels=labels(), missing="drop")
    assert found.n == ROWS - 2


def test_a_guessed_column_does_not_drop_rows(tmp_path, X):
    table = {"vector": pa.array(X.tolist(), pa.list_(pa.float32())), "label": pa.array(labels())}
    pq.write_table(pa.table(table), tmp_path / "x.parquet")
    assert isoscope.audit(tmp_path / "x.parquet", missing="drop").n == ROWS


def test_commands_drop_missing_values_and_count_them(tmp_path, X, capsys):
    path, repair = str(parquet(tmp_path, X)), str(tmp_path / "repair")
    source = [path, "--columns", "labels=kind"]
    for command in (
        ["audit", *source],
        ["fit", "center", *source, "-o", repair],
        ["convert", *source[:1], str(tmp_path / "out.parquet"), *source[1:]],
        ["sketch", *source],
        ["similarity", *source[:1], "0.5", *source[1:]],
        ["fix", "center", *source, "-o", str(tmp_path / "fixed.npy")],
    ):
        assert main(command) == 2
        assert "--missing drop" in capsys.readouterr().err
        assert main([*command, "--missing", "drop"]) == 0, capsys.readouterr().err
    assert len(np.load(tmp_path / "fixed.npy")) == len(COMPLETE)
    capsys.readouterr()
    assert main(["apply", repair, *source, "-o", str(tmp_path / "applied.npy"), "--missing", "drop"]) == 0
    assert "4 rows of x.parquet were dropped" in capsys.readouterr().err


# zeros


@pytest.fixture
def with_zeros(X):
    X[[2, 5, 11]] = 0
    return X


@pytest.mark.parametrize(
    "repair",
    [
        isoscope.Center(),
        isoscope.Standardize(),
        isoscope.AllButTheTop(2),
        isoscope.Whiten(),
        isoscope.ClusterCenter(n_clusters=2, random_state=0),
        isoscope.ClusterNull(n_clusters=2, n_components=1, random_state=0),
        isoscope.Chain([isoscope.Center(), isoscope.Whiten()]),
    ],
    ids=lambda repair: type(repair).__name__,
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_row_of_zeros_stays_zero(with_zeros, repair, dtype, tmp_path):
    fitted = repair.fit(with_zeros)
    repaired = fitted.transform(with_zeros.astype(dtype))
    assert (repaired[[2, 5, 11]] == 0).all()
    assert repaired.any(axis=1).sum() == ROWS - 3
    fitted.save(tmp_path / "repair")
    np.save(tmp_path / "x.npy", with_zeros.astype(dtype))
    messages = []
    isoscope.repair_store(tmp_path / "x.npy", fitted, tmp_path / "y.npy", say=messages.append)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), repaired)
    assert messages == ["3 rows of zeros stay zero: they have no direction to repair"]
    messages.clear()
    assert isoscope.repair_store(tmp_path / "x.npy", fitted, tmp_path / "parts", say=messages.append) == ROWS
    np.testing.assert_array_equal(open_store(tmp_path / "parts").take(np.arange(ROWS)), repaired)
    assert messages == ["3 rows of zeros stay zero: they have no direction to repair"]


def test_dropped_rows_are_counted_when_a_folder_is_resumed(with_zeros, tmp_path):
    np.save(tmp_path / "x.npy", with_zeros)
    repair = isoscope.Center().fit(with_zeros)
    for _ in range(2):
        store = open_store(tmp_path / "x.npy", zeros="drop")
        assert isoscope.repair_store(store, repair, tmp_path / "parts") == ROWS - 3


def test_a_saved_repair_keeps_rows_of_zeros(with_zeros, tmp_path):
    np.save(tmp_path / "x.npy", with_zeros)
    assert main(["fit", "whiten", str(tmp_path / "x.npy"), "-o", str(tmp_path / "repair")]) == 0
    assert main(["apply", str(tmp_path / "repair"), str(tmp_path / "x.npy"), "-o", str(tmp_path / "y.npy")]) == 0
    assert not np.load(tmp_path / "y.npy")[[2, 5, 11]].any()


def test_rows_of_zeros_can_be_dropped(with_zeros, tmp_path, capsys):
    found = isoscope.audit(with_zeros, zeros="drop")
    assert (found.n, found["broken_rows"].details) == (ROWS - 3, {"zero": 0, "nonfinite": 3})
    np.save(tmp_path / "x.npy", with_zeros)
    assert main(["convert", str(tmp_path / "x.npy"), str(tmp_path / "y.npy"), "--zeros", "drop"]) == 0
    assert "3 rows of x.npy were dropped" in capsys.readouterr().err
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), with_zeros[with_zeros.any(axis=1)])


def test_dropping_zeros_does_not_hide_missing_values(with_zeros):
    with_zeros[40, 1] = np.nan
    with pytest.raises(MissingValueError, match="row 40"):
        isoscope.audit(with_zeros, zeros="drop")


def test_onnx_keeps_rows_of_zeros(with_zeros):
    runtime = pytest.importorskip("onnxruntime")
    repair = isoscope.Whiten().fit(with_zeros)
    session = runtime.InferenceSession(repair.to_onnx().SerializeToString())
    found = session.run(None, {"vectors": with_zeros})[0]
    np.testing.assert_allclose(found, repair.transform(with_zeros), rtol=1e-4, atol=1e-5)
    assert not found[[2, 5, 11]].any()


@pytest.mark.parametrize(("name", "value"), [("missing", "raise"), ("zeros", "error")])
def test_unknown_policies_are_rejected(X, name, value):
    with pytest.raises(InputError, match=f"{name} is '{value}'"):
        open_store(X, **{name: value})


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["y.npy", "y.safetensors", "y.parquet", "y.arrow", "lancedb:y#t"])
def test_convert_stops_at_missing_values(X, value, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X[40, 1] = value
    np.save("x.npy", X)
    assert main(["convert", "x.npy", name]) == 2
    assert "x.npy contains NaN or infinity, first in row 40" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npy"]
    assert main(["convert", "x.npy", name, "--missing", "drop"]) == 0
    np.testing.assert_array_equal(open_store(name).take(np.arange(ROWS - 1)), np.delete(X, 40, axis=0))


@pytest.mark.parametrize("line", ["1e400,1\n", "inf,1\n"])
def test_convert_stops_at_numbers_that_overflow(line, tmp_path, capsys):
    (tmp_path / "x.csv").write_text("e0,e1\n1,2\n3,4\n" + line)
    assert main(["convert", str(tmp_path / "x.csv"), str(tmp_path / "y.npy")]) == 2
    assert "first in row 2" in capsys.readouterr().err
    assert not (tmp_path / "y.npy").exists()


def test_batches_with_missing_values_are_not_written(X, tmp_path):
    X[40, 1] = np.nan
    with pytest.raises(MissingValueError, match="row 40"):
        write_store(open_store(X).batches(rows=30), tmp_path / "y.npy")
    assert not (tmp_path / "y.npy").exists()
