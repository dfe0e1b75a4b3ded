"""The row table: its sums are the findings of the audit, and its columns agree with scikit-learn."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import isoscope
from isoscope.auditing import row_neighbors
from isoscope.auditing.row_neighbors import HUB_FACTOR, _connect
from isoscope.auditing.row_table import ROWS_SCHEMA, RowTable
from tests.conftest import tolerance


def cloud(n=400, d=16, seed=0):
    """Rows with copies, near-duplicates, zero rows and a hub, in three clusters."""
    rng = np.random.default_rng([seed, n, d])
    X = rng.standard_normal((n, d)) / np.arange(1, d + 1) ** 0.5 + 3 * rng.standard_normal((3, d))[np.arange(n) % 3]
    X[10], X[11], X[12] = X[20], X[20], X[20] * (1 + 1e-6)
    X[30] = X[31] + 1e-5
    X[40] = X[41] = 0
    return X.astype(np.float32)


@pytest.fixture(scope="module")
def source():
    n = 400
    return pa.table(
        {
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(cloud(n).ravel()), 16),
            "doc_id": [f"d{i}" for i in range(n)],
            "text": [f"text {i}" for i in range(n)],
            "label": [str(i % 3) if i != 50 else "0" for i in range(n)],
        }
    )


@pytest.fixture(scope="module")
def audit(source):
    return isoscope.audit(source, rows=True)


@pytest.fixture(scope="module")
def frame(audit):
    return audit.rows.to_pandas()


# identities: the table adds up to the findings


def test_sums_are_the_findings_of_the_audit(audit, frame):
    assert (frame.is_zero | frame.is_dropped).mean() == audit["broken_rows"].value == 2 / 400
    assert frame.is_copy.sum() == audit["duplicates"].details["copies"]
    assert frame.is_near_duplicate.sum() == audit["near_duplicates"].details["rows"] > 0
    usable = frame[~frame.is_zero]
    assert usable.is_anti_hub.mean() == pytest.approx(audit["hubness"].value)
    assert usable.k_occurrence.max() == audit["hubness"].details["largest"]
    assert usable.k_occurrence.mean() == pytest.approx(10)
    assert frame.lid.mean() == pytest.approx(audit["intrinsic_dimension"].value, rel=1e-5)
    assert frame.lid.isna().sum() == audit["intrinsic_dimension"].details["without_estimate"] + 2
    assert frame.norm.max() == pytest.approx(audit.measured.sketch.greatest_norm)


def test_cosines_to_the_mean_add_up_to_the_mean_cosine(audit, frame):
    length = float(frame.cosine_to_mean.sum())  # Σu·m = ‖Σu‖; two rows are zero and add nothing
    assert (length**2 - 398) / (400 * 399) == pytest.approx(audit["mean_cosine"].value, rel=1e-4)
    assert frame.cosine_to_mean[[40, 41]].isna().all()


def test_positions_and_clusters_are_those_of_the_page(audit, frame):
    pictures = audit.pictures
    points = frame.loc[pictures.rows, ["x", "y"]].to_numpy()
    np.testing.assert_allclose(points, pictures.points[:, :2], atol=tolerance(np.float32))
    assert audit.measured.clusters.n_clusters > 1
    np.testing.assert_array_equal(frame.cluster[pictures.rows], pictures.clusters)


def test_groups_connect_copies_and_near_duplicates(frame):
    groups = frame.duplicate_group.dropna().groupby(frame.duplicate_group).groups
    assert {int(name): sorted(rows) for name, rows in groups.items()} == {
        10: [10, 11, 12, 20],
        30: [30, 31],
        40: [40, 41],
    }
    assert frame.index[frame.is_copy].tolist() == [11, 20, 41]
    assert frame.is_near_duplicate[[12, 20, 30, 31]].all()


def test_a_row_order_does_not_change_the_measurements(frame):
    order = np.random.default_rng(1).permutation(400)
    other = isoscope.audit(cloud()[order], rows=True).rows.to_pandas()
    for name in ("norm", "nearest_cosine", "lid", "cosine_to_mean", "outlier_score"):
        np.testing.assert_allclose(other[name], frame[name][order], rtol=1e-3, atol=1e-5)
    alone = frame.duplicate_group[order].isna().to_numpy()  # among copies, the order decides which is nearest
    np.testing.assert_array_equal(order[other.nearest_row[alone].astype(int)], frame.nearest_row[order][alone])


# an independent oracle


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_neighbors_agree_with_scikit_learn(metric):
    from sklearn.neighbors import NearestNeighbors

    X = cloud()[50:].astype(np.float64)  # no copies, no zero rows
    frame = isoscope.audit(X, rows=True, metric=metric).rows.to_pandas()
    distances, indices = NearestNeighbors(n_neighbors=11, metric=metric).fit(X).kneighbors()
    np.testing.assert_array_equal(frame.nearest_row, indices[:, 0])
    own = 1 - frame.nearest_cosine if metric == "cosine" else frame.nearest_distance
    np.testing.assert_allclose(own, distances[:, 0], rtol=1e-4, atol=1e-6)
    expected = np.bincount(indices[:, :10].ravel(), minlength=len(X))
    np.testing.assert_array_equal(frame.k_occurrence, expected)
    np.testing.assert_array_equal(frame.is_hub, expected > 10 * HUB_FACTOR)
    np.testing.assert_array_equal(frame.is_anti_hub, expected == 0)
    np.testing.assert_array_equal(np.stack([each["ids"] for each in frame.neighbors]), indices[:, :10])


def test_labels_are_compared_with_those_of_the_neighbors(audit, frame):
    labels = frame.label.to_numpy()
    for row in (0, 50, 399):
        near = labels[frame.neighbors[row]["ids"]].tolist()
        assert frame.same_label_share[row] == pytest.approx(near.count(labels[row]) / 10)
        assert near.count(frame.neighbor_label[row]) == max(map(near.count, near))
    conflicts = [10, 12, 30, 50]  # the first three are copies of rows with another label
    assert frame.index[frame.has_label_conflict].tolist() == conflicts
    assert sorted(entry["row"] for entry in audit.worst["label_conflicts"].entries) == conflicts


# columns of the user


def test_the_table_has_the_users_ids_labels_and_texts(frame, source):
    assert frame.columns[:4].tolist() == ["row", "doc_id", "text", "label"]
    for name in ("doc_id", "text", "label"):
        assert frame[name].tolist() == source[name].to_pylist()
    assert frame.nearest_id.dropna().tolist() == [f"d{row:.0f}" for row in frame.nearest_row.dropna()]
    assert frame.nearest_id[[40, 41]].isna().all()


def test_names_that_are_taken_are_replaced():
    frame = pd.DataFrame({"cluster": np.arange(200) % 2, "row": -np.arange(200), "embedding": [*cloud()[50:250]]})
    table = isoscope.audit(frame, labels="cluster", ids="row", rows=True).rows.to_pandas()
    assert table.id.tolist() == frame.row.tolist()
    assert table.label.tolist() == frame.cluster.tolist()
    assert table.row.tolist() == [*range(200)]


def test_unusable_guessed_ids_are_left_out(source):
    spoiled = source.set_column(1, "doc_id", pa.array([None, *source["doc_id"].to_pylist()[1:]]))
    result = isoscope.audit(spoiled, rows=True)
    assert "doc_id" not in result.rows.columns
    assert "doc_id" in result.skipped["ids"]
    with pytest.raises(isoscope.InputError, match="doc_id"):
        isoscope.audit(spoiled, ids="doc_id", rows=True)


# larger sources


@pytest.fixture
def few_exact_rows(monkeypatch):
    monkeypatch.setattr(row_neighbors, "MAX_EXACT_ROWS", 300)


def test_a_source_that_is_larger_than_the_sample_is_searched_completely(frame, source):
    other = isoscope.audit(source, rows=True, sample=200)
    table = other.rows.to_pandas()
    assert other.rows.metadata["exact"] is True
    for name in ("nearest_row", "k_occurrence", "duplicate_group", "is_near_duplicate", "same_label_share"):
        np.testing.assert_array_equal(table[name], frame[name])
    for name in ("norm", "lid", "nearest_cosine", "outlier_score"):
        np.testing.assert_allclose(table[name], frame[name], rtol=1e-3, atol=1e-4)


def test_above_the_limit_neighbors_are_searched_in_the_sample(few_exact_rows, source):
    from sklearn.neighbors import NearestNeighbors

    result = isoscope.audit(source, rows=True, sample=250)
    table, found = result.rows.to_pandas(), result.rows.neighbors
    sampled = result.measured.sample.rows
    sampled = sampled[cloud()[sampled].any(axis=1)]
    assert (found.searched, found.exact) == (len(sampled), False)
    assert "neighbors" not in table.columns
    assert table.k_occurrence.notna().tolist() == np.isin(np.arange(400), sampled).tolist()
    assert (table.k_occurrence == 0).sum() / len(sampled) == pytest.approx(result["hubness"].value)
    X = cloud().astype(np.float64)
    search = NearestNeighbors(n_neighbors=2, metric="cosine").fit(X[sampled])
    rows = np.setdiff1d(np.arange(50, 400), sampled)
    np.testing.assert_array_equal(table.nearest_row[rows], sampled[search.kneighbors(X[rows])[1][:, 0]])
    rows = sampled[sampled >= 50]
    np.testing.assert_array_equal(table.nearest_row[rows], sampled[search.kneighbors(X[rows])[1][:, 1]])
    assert table.is_copy.sum() == 3  # copies are found among all rows
    assert "sample" in result.worst.note


def test_outliers_and_near_duplicates_outside_the_sample_are_found(few_exact_rows):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 24)) / np.arange(1, 25)
    sampled = isoscope.audit(X, sample=600).measured.sample.rows  # the sample depends only on the row numbers
    outside = np.setdiff1d(np.arange(1500), sampled)[:4]
    X[outside[:3]] = np.eye(24)[-3:]  # directions in which other rows hardly vary
    X[outside[3]] = X[sampled[0]] + 1e-6
    result = isoscope.audit(X, sample=600, rows=True)
    frame = result.rows.to_pandas()
    assert set(outside[:3]) <= set(frame.index[frame.is_outlier])
    assert frame.is_outlier.sum() <= 4
    pair = [outside[3], sampled[0]]
    assert frame.is_near_duplicate[pair].all()
    assert (frame.duplicate_group[pair] == min(pair)).all()
    entry = result.worst["near_duplicates"].entries[0]
    assert sorted([entry["row"], entry["other"]["row"]]) == sorted(pair)


def test_the_parts_of_a_tally_can_be_joined(few_exact_rows, source):
    whole = isoscope.audit(source, rows=True, sample=250).rows.neighbors
    store = isoscope.open_store(source)
    from isoscope.engines.engine import LocalEngine

    class Halves(LocalEngine):
        """An engine that reads two halves into two copies of a tally, as workers do."""

        def tally(self, tally, store, progress=None, stage=""):
            import pickle

            copies = [pickle.loads(pickle.dumps(tally)) for _ in range(2)]
            for batch in store.batches(tally.columns, rows=170):
                copies[batch.start >= 170].add_batches([batch])
            for each in copies:
                tally.join(each.partial_result())
            return tally

    halves = isoscope.audit(store, rows=True, sample=250, engine=Halves()).rows.neighbors
    for name in ("nearest", "group", "occurrences", "is_outlier"):
        np.testing.assert_array_equal(getattr(halves, name), getattr(whole, name))
    np.testing.assert_allclose(halves.lid, whole.lid, rtol=1e-4)


# rows without neighbors


def test_dropped_rows_are_in_the_table_without_measurements():
    X = cloud()
    X[7, 3] = np.nan
    result = isoscope.audit(X, rows=True, missing="drop", zeros="drop")
    frame = result.rows.to_pandas()
    assert frame.index[frame.is_dropped].tolist() == [7, 40, 41]
    assert frame.is_dropped.mean() == result["broken_rows"].value
    empty = ["norm", "nearest_row", "nearest_cosine", "lid", "cluster", "outlier_score", "x", "y", "k_occurrence"]
    assert frame.loc[7, empty].isna().all()
    assert frame.loc[~frame.is_dropped, ["norm", "cluster", "x"]].notna().all(axis=None)
    assert result.worst["zero_rows"].count == 3


@pytest.mark.parametrize("n", [4, 11, 40])
def test_few_rows(n):
    result = isoscope.audit(cloud()[60 : 60 + n], rows=True)
    frame = result.rows.to_pandas()
    assert len(frame) == n
    assert frame.outlier_score.isna().all()
    assert "outlier_score" in result.worst.notes
    assert frame.nearest_row.notna().all()


def test_equal_rows():
    result = isoscope.audit(np.ones((120, 4)), rows=True)
    frame = result.rows.to_pandas()
    assert frame.duplicate_group.tolist() == [0] * 120
    assert frame.is_copy.sum() == 119
    assert frame.k_occurrence.isna().all()
    assert "k_occurrence" in result.worst.notes


def test_connected_components():
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 60, (40, 2))
    group, naive = _connect(60, edges), np.arange(60)
    for _ in range(60):
        for a, b in edges:
            naive[a] = naive[b] = min(naive[a], naive[b])
    touched = np.isin(np.arange(60), edges)
    np.testing.assert_array_equal(group, np.where(touched, naive, -1))
    assert _connect(3, np.empty((0, 2), int)).tolist() == [-1, -1, -1]


# files


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv"])
def test_every_format_has_the_same_values(audit, frame, tmp_path, ending):
    path = tmp_path / f"rows.{ending}"
    assert audit.rows.write(path) == 400
    if ending == "parquet":
        table = pq.read_table(path)
    elif ending == "arrow":
        table = pa.ipc.open_file(path).read_all()
    else:
        table = pc.read_csv(path)
    assert table.column_names == [name for name in frame.columns if ending != "csv" or name != "neighbors"]
    assert table["nearest_row"].null_count == 2
    for name in ("row", "norm", "is_hub", "nearest_cosine", "doc_id"):
        expected = frame[name].tolist()
        if name in ("norm", "nearest_cosine"):
            expected = pytest.approx([None if value != value else value for value in expected])
        assert table[name].to_pylist() == expected
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_metadata_states_the_schema_the_settings_and_the_rules(audit, tmp_path):
    audit.rows.write(tmp_path / "rows.parquet")
    schema = pq.read_schema(tmp_path / "rows.parquet")
    content = json.loads(schema.metadata[b"isoscope"])
    assert content["schema"] == ROWS_SCHEMA
    assert content["settings"]["metric"] == "cosine"
    assert (content["rows"], content["searched_rows"], content["exact"]) == (400, 398, True)
    assert set(content["rules"]) == {"duplicate_group", "is_hub", "is_outlier"}
    for field in schema:
        assert field.metadata[b"description"].decode() == audit.rows.columns[field.name]


def test_other_libraries_read_the_table(audit):
    table = pa.table(audit.rows)
    assert table.num_rows == len(audit.rows) == 400
    assert repr(audit.rows) == f"RowTable(400 rows, {table.num_columns} columns)"


def test_a_failed_write_leaves_the_old_file(audit, tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    path.write_text("old")

    def fail(self, **options):
        yield next(iter(original(self)))
        raise OSError("the disk failed")

    original = RowTable.batches
    monkeypatch.setattr(RowTable, "batches", fail)
    with pytest.raises(OSError, match="the disk failed"):
        audit.rows.write(path)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["rows.parquet"]


# bad input


@pytest.mark.parametrize("name", ["rows.txt", "rows", "missing/rows.parquet", "."])
def test_bad_outputs_are_refused(audit, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(isoscope.errors.OutputError):
        audit.rows.write(name)
    assert not [*tmp_path.iterdir()]


def test_bad_parameters_are_refused():
    X = cloud()
    with pytest.raises(isoscope.errors.ParameterError, match="top is 0"):
        isoscope.audit(X, rows=True, top=0)
    with pytest.raises(isoscope.errors.ParameterError, match="by="):
        isoscope.audit(X, rows=True, by=np.arange(400) % 2)


def test_an_audit_without_rows_has_no_table():
    result = isoscope.audit(cloud())
    assert result.rows is None
    assert result.worst is None
    assert "worst_rows" not in result.to_dict()
