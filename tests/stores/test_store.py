"""Every format gives the same vectors and columns."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import isoscope
from isoscope import InputError
from isoscope.stores.open import open_store
from isoscope.stores.store import Batch, Store, default_rows
from tests.stores.conftest import FORMATS, D, N

each_format = pytest.mark.parametrize("form", FORMATS, ids=repr)


@pytest.fixture
def store(form, written) -> Store:
    return open_store(written(form))


@each_format
def test_rows_are_read_once_in_order_in_every_pass(store, form, truth):
    assert (len(store), store.dim, store.dtype) == (N, D, np.dtype(form.dtype))
    assert store.name == form.name
    for rows in (None, 7, 7, N):
        chunks = list(store.chunks(rows))
        assert all(c.dtype == store.dtype and c.dtype.isnative and c.flags.aligned for c in chunks)
        assert all(0 < len(c) <= (rows or N) for c in chunks)
        np.testing.assert_array_equal(np.concatenate(chunks), truth.vectors.astype(form.dtype))


@each_format
def test_batches_have_row_offset_and_columns(store, form, truth):
    roles = form.columns.split()
    assert sorted(store.columns) == roles
    done, share = 0, 0.0
    assert len(store) == N  # from then on the share is that of the rows
    for batch in store.batches(roles, rows=64):
        assert isinstance(batch, Batch)
        assert batch.start == done
        done += len(batch.vectors)
        assert share <= batch.share <= 1
        share = batch.share
        if "shards" not in form.name:
            assert share == pytest.approx(done / N)
        rows = slice(batch.start, done)
        assert sorted(batch.columns) == roles
        if "labels" in roles:
            assert batch.columns["labels"].dtype == np.int64
            np.testing.assert_array_equal(batch.columns["labels"], truth.labels[rows])
        if "text" in roles:
            assert batch.columns["text"].tolist() == truth.words[rows]
    assert (done, share) == (N, 1.0)


@each_format
def test_rows_are_returned_in_the_requested_order(store, form, truth, rng):
    for rows in (rng.integers(0, N, 50), [999, 0, 999, 500], np.arange(10, 40, 3), [0], []):
        found = store.take(rows)
        assert (found.dtype, found.shape) == (store.dtype, (len(rows), D))
        np.testing.assert_array_equal(found, truth.vectors[np.asarray(rows, int)].astype(form.dtype))


@each_format
def test_columns_are_read_completely_or_in_part(store, form, truth, rng):
    rows = rng.integers(0, N, 20)
    text = np.array(truth.words, object)
    for role, values in (("labels", truth.labels), ("types", None), ("text", text), ("ids", np.arange(N))):
        if role in form.columns:
            np.testing.assert_array_equal(store.column(role), values)
            np.testing.assert_array_equal(getattr(store, role), values)
            np.testing.assert_array_equal(store.column(role, rows), values[rows])
            assert len(store.column(role, [])) == 0
        else:
            assert store.column(role) is None
            assert getattr(store, role) is None
            assert store.column(role, [1]) is None


@each_format
@pytest.mark.parametrize("rows", [[N], [-1], [0, 5, N + 3]])
def test_nonexistent_row_raises(store, rows):
    with pytest.raises(InputError, match=rf"row (1000|-1|1003) does not exist: .* has rows 0…{N - 1}"):
        store.take(rows)


@each_format
def test_passes_can_be_abandoned_and_interleaved(store, truth):
    first, second = store.batches(rows=100), store.batches(rows=10)
    next(first), next(second)
    for batch in (next(first), next(second)):
        assert batch.start > 0
        rows = slice(batch.start, batch.start + len(batch.vectors))
        np.testing.assert_array_equal(batch.vectors.astype(np.float32), truth.vectors[rows])
    first.close(), second.close()
    assert sum(len(chunk) for chunk in store) == N


@each_format
def test_passed_values_become_columns(form, written, truth, rng):
    labels = [f"c{v}" for v in truth.labels]
    store = open_store(written(form), labels=labels, types=truth.labels + 0.5)
    assert store.labels.tolist() == labels
    batches = list(store.batches(["labels", "types"], rows=300))
    assert [v for batch in batches for v in batch.columns["labels"]] == labels
    np.testing.assert_array_equal(np.concatenate([b.columns["types"] for b in batches]), truth.labels + 0.5)
    assert store.column("labels", [999, 1, 1]).tolist() == [labels[999], labels[1], labels[1]]
    with pytest.raises(InputError, match=f"labels has 99 entries but {store.name} has {N:,} rows"):
        open_store(written(form), labels=labels[:99])


@each_format
@pytest.mark.parametrize("beside", [False, True])
def test_a_pass_can_start_at_any_row(store, form, truth, beside):
    cuts = [batch.start for batch in store.batches(rows=64)]
    for start in (cuts[3], 1, 500, N - 1):
        batches = list(store.batches(form.columns.split(), rows=64, start=start, other_columns=beside))
        assert batches[0].start == start
        np.testing.assert_array_equal(np.concatenate([b.vectors for b in batches]), truth.vectors[start:])
        if "text" in form.columns:
            assert [v for b in batches for v in b.columns["text"]] == truth.words[start:]
        if start == cuts[3]:
            assert [batch.start for batch in batches] == cuts[3:]  # cut as in a pass from the beginning
    assert list(store.batches(start=N)) == []


def test_sketch_of_store_equals_sketch_of_its_rows(written, truth):
    store = open_store(written(FORMATS[7]))
    assert isoscope.sketch(store).n == N
    assert isoscope.sketch(store).isoscore() == pytest.approx(float(isoscope.isoscore(truth.vectors)), rel=1e-6)


def test_opening_a_store_returns_it_unchanged(truth):
    store = open_store(truth.vectors)
    assert open_store(store) is store
    labeled = open_store(store, labels=truth.labels)
    assert labeled.labels is not None
    assert store.labels is None
    with pytest.raises(InputError, match="specify its columns when you open it"):
        open_store(store, labels="label")


def test_invalid_requests_to_a_store(truth):
    store = open_store(truth.vectors, labels=truth.labels)
    with pytest.raises(InputError, match="array has no text: it has labels; specify the column with"):
        store.batches(["text"])
    with pytest.raises(
        InputError,
        match='\'words\' is not a column role: choose from "labels", "types", "text"',
    ):
        store.column("words")
    for rows in (0, -1, 2.5):
        with pytest.raises(InputError, match="rows is"):
            store.batches(rows=rows)
    for wrong in ([0.5], [[1]], [True, False], ["1"]):
        with pytest.raises(InputError, match="need an integer array of shape"):
            store.take(wrong)


def test_default_batch_size_is_16_megabytes():
    assert default_rows(64) == 65_536
    assert default_rows(768) == 2**24 // 4 // 768
    assert default_rows(10**8) == 1


# groups of rows


@each_format
def test_any_column_can_group_rows_but_only_on_request(form, written, truth):
    if "labels" not in form.columns:
        pytest.skip("the format has no labels")
    path = written(form)
    plain = open_store(path)
    assert "by" not in plain.columns
    by_role, by_name = open_store(path, by="labels"), open_store(path, by=plain.columns["labels"])
    for store in (by_role, by_name, plain.group_by("labels"), plain.group_by(plain.columns["labels"])):
        assert store.columns["by"] == plain.columns["labels"]
        np.testing.assert_array_equal(store.column("by"), truth.labels)
        for batch in store.batches(["by", "labels"], rows=64):
            np.testing.assert_array_equal(batch.columns["by"], batch.columns["labels"])


def test_groups_may_be_given_as_values(truth):
    kinds = np.arange(N) % 4
    store = open_store(truth.vectors, by=kinds)
    np.testing.assert_array_equal(store.column("by"), kinds)
    labeled = open_store(truth.vectors, labels=kinds, by="labels")
    np.testing.assert_array_equal(labeled.column("by", [5, 2]), kinds[[5, 2]])
    assert "by" not in labeled.without("by").columns


def test_open_table_can_be_grouped_by_any_column(tmp_path, truth):
    """Group, for example, the hidden states of a model in memory by layer."""
    layers = np.arange(N) % 3
    table = pa.table({"embedding": list(truth.vectors), "layer": layers, "label": truth.labels})
    for part, rows in (("0", slice(0, 5)), ("1", slice(5, None))):
        pq.write_table(table[rows], tmp_path / f"part-{part}.parquet")
    shards = open_store(tmp_path)
    for store in (open_store(table), shards, shards.mapped(np.negative, D)):
        grouped = store.group_by("layer")
        assert "by" not in store.columns
        np.testing.assert_array_equal(grouped.column("by"), layers)
        np.testing.assert_array_equal(grouped.column("by", [4, 1]), layers[[4, 1]])
        batches = grouped.batches(["by"])
        np.testing.assert_array_equal(np.concatenate([batch.columns["by"] for batch in batches]), layers)
    elsewhere = pickle.loads(pickle.dumps(shards.group_by("layer")))
    np.testing.assert_array_equal(elsewhere.column("by"), layers)
    with pytest.raises(InputError, match="has no column embedding to group by"):
        open_store(table).group_by("embedding")


def test_an_unknown_column_to_group_by_is_reported_with_the_known_ones(tmp_path, truth):
    table = pa.table({"embedding": list(truth.vectors), "layer": np.arange(N) % 3, "note": truth.words})
    assert open_store(table, by="layer").columns == {"by": "layer"}
    with pytest.raises(InputError, match="has no column depth for by: the columns are layer, note"):
        open_store(table, by="depth")
    with pytest.raises(InputError, match="has no column depth to group by: choose one of by"):
        open_store(open_store(table, by="layer"), by="depth")
    with pytest.raises(InputError, match="has no column layer for by: it contains only vectors"):
        open_store(truth.vectors, by="layer")
    holes = table.set_column(1, "layer", pa.array([None, 1] * (N // 2) + [2] * (N % 2)))
    with pytest.raises(InputError, match=f"layer is empty in {N // 2} of {N:,} rows"):
        open_store(holes, by="layer").column("by")


# frequencies


@each_format
def test_word_frequencies_follow_the_rank(form, written):
    if "frequency" not in form.columns:
        pytest.skip("no word vectors")
    store = open_store(written(form), by="rank")
    np.testing.assert_array_equal(store.frequency, 1 / np.arange(1, N + 1))
    np.testing.assert_array_equal(store.column("by"), np.arange(1, N + 1))
    np.testing.assert_array_equal(store.column("frequency", [3, 1]), [1 / 4, 1 / 2])
    assert "frequency" in store.guessed


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ([1, 2, -3, 4, -5, 6], "contains -3 in row 2 .2 such rows"),
        ([1, np.inf, 3, 4, 5, 6], "contains inf in row 1 .1 such row"),
        (["1", "2", "many", "4", "5", "6"], "contains 'many': frequencies must be numbers"),
        ([1.0, np.nan, 3, 4, 5, np.nan], "is empty in 2 of 6 rows"),
    ],
)
def test_invalid_frequencies_are_rejected(values, complaint):
    with pytest.raises(InputError, match=complaint):
        open_store(np.eye(6), frequency=values)


def test_numbers_in_text_are_frequencies():
    np.testing.assert_array_equal(open_store(np.eye(3), frequency=["10", "2.5", "0"]).frequency, [10, 2.5, 0])


def test_the_repr_has_name_rows_and_dimensions(tmp_path):
    assert repr(open_store(np.zeros((3, 2), np.float32))) == "Store(array: 3 rows, 2 dimensions, float32)"
    (tmp_path / "a.csv").write_text("a,b,label\n1,2,x\n3,4,y\n")
    store = open_store(tmp_path / "a.csv")
    assert "rows not counted" in repr(store)  # counting would read the file
    assert len(store) == 2
    assert repr(store) == "Store(a.csv: 2 rows, 2 dimensions, float64, with labels)"
    assert repr(store.mapped(lambda rows: rows[:, :1], 1)) == "Store(a.csv: 2 rows, 1 dimension, float64, with labels)"
