"""Audits of rows that are not independent, such as the tokens of texts."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import isoscope
from isoscope.auditing.findings import space
from isoscope.auditing.findings.evidence import Evidence
from isoscope.auditing.measure import Settings
from isoscope.auditing.passes import principal_axes
from isoscope.stores.sampling import Sample

SHAPE = ("isoscore", "mean_cosine", "anisotropy", "effective_rank")


def token_table(texts=40, tokens=25, d=8, seed=0):
    """Token states as `isoscope embed` writes them: those of a text lie together."""
    rng = np.random.default_rng(seed)
    document = np.repeat(np.arange(texts), tokens)
    vectors = 2 * rng.standard_normal((texts, d))[document] + rng.standard_normal((texts * tokens, d)) + 1
    return pa.table({"embedding": vectors.tolist(), "document": document, "text": ["a"] * len(document)}), vectors


def test_audit_of_token_states_groups_tokens_by_document():
    table, vectors = token_table()
    document = table["document"].to_numpy()
    found, by_rows = isoscope.audit(table), isoscope.audit(vectors)
    assert found.columns["groups"] == "document"
    assert found["isoscore"].value == pytest.approx(isoscope.sketch(vectors, groups=document).isoscore(unbiased=True))
    assert (found["isoscore"].low, found["isoscore"].high) == pytest.approx(
        isoscope.sketch(vectors, groups=document).isoscore_interval()
    )
    assert "assumes independent groups of rows (40 values of document)" in found["isoscore"].meaning
    assert "The estimate assumes independent rows." in by_rows["isoscore"].meaning
    for name in SHAPE:
        assert found[name].details["interval"] == "assumes independent groups of rows (40 values of document)"
        assert by_rows[name].details["interval"] == "assumes independent rows"
        assert found[name].high - found[name].low > 1.5 * (by_rows[name].high - by_rows[name].low), name
    assert by_rows["isoscore"].value < 0.9 < found["isoscore"].value


def test_groups_are_given_as_values_or_by_a_columns_name():
    table, vectors = token_table()
    expected = isoscope.audit(table)["isoscore"]
    page = table.rename_columns(["embedding", "page", "text"])
    assert "assumes independent rows" in isoscope.audit(page)["isoscore"].meaning
    assert isoscope.audit(page, groups="page")["isoscore"].value == expected.value
    given = isoscope.audit(vectors, groups=table["document"].to_numpy())["isoscore"]
    assert (given.value, given.low) == (expected.value, expected.low)
    assert "assumes independent groups of rows (40 groups)" in given.meaning


def test_groups_of_one_row_equal_independent_rows():
    table, _ = token_table(texts=600, tokens=1)
    assert "groups" not in isoscope.audit(table).columns
    layers = pa.concat_tables([table, table]).append_column("layer", pa.array([0] * 600 + [1] * 600))
    by_layer = isoscope.audit(layers, by="layer")
    assert "assumes independent rows" in by_layer[0]["isoscore"].meaning
    with pytest.warns(isoscope.DataWarning, match="2 layers"):
        together = isoscope.audit(layers)
    assert together["isoscore"].details["interval"].endswith("(600 values of document)")


def test_each_layer_is_audited_with_its_documents():
    table, _ = token_table()
    other = token_table(seed=1)[0]
    layers = pa.concat_tables([table, other]).append_column("layer", pa.array([0] * 1000 + [1] * 1000))
    found = isoscope.audit(layers, by="layer")
    expected = isoscope.audit(table)["isoscore"]
    assert found[0]["isoscore"].value == pytest.approx(expected.value, rel=1e-12)
    assert found[0]["isoscore"].low == pytest.approx(expected.low, rel=1e-9)


def test_too_few_groups_are_reported():
    table, vectors = token_table(texts=4, tokens=50)
    found = isoscope.audit(table)
    assert found.skipped["groups"].startswith("4 groups of dependent rows are too few: need at least 5")
    assert found["isoscore"].value == pytest.approx(isoscope.isoscore(vectors, unbiased=True))
    assert "assumes independent rows" in found["isoscore"].meaning


@pytest.mark.parametrize("name", SHAPE)
def test_grouped_intervals_of_isotropy_cover_the_truth(name):
    """The true value comes from very many texts."""
    runs, spread = 100, np.sqrt([4, 2, 1, 1])

    def tokens(rng, texts, each):
        shared = rng.standard_normal((texts, 4)).repeat(each, axis=0)
        return (shared + 0.5 * rng.standard_normal((texts * each, 4))) * spread + [1, 0, 0, 0]

    many = isoscope.sketch(tokens(np.random.default_rng(99), 200_000, 1))
    truth = {
        "isoscore": many.isoscore(),
        "mean_cosine": many.mean_cosine(),
        "anisotropy": float(many.anisotropy(1)[0]),
        "effective_rank": many.effective_rank(),
    }[name]
    held = 0
    for seed in range(runs):
        X = tokens(np.random.default_rng(seed), 100, 3)
        text = np.arange(300) // 3
        sketch = isoscope.Sketch.of(X, groups=text)
        sample = Sample(np.arange(300), X, {}, np.arange(300).astype(np.uint64))
        axes = {centered: principal_axes(sketch, sample, centered=centered) for centered in (False, True)}
        measured = SimpleNamespace(
            sketch=sketch,
            sample=sample,
            n=300,
            d=4,
            raw=axes[False],
            centered=axes[True],
            settings=Settings(),
            columns={},
        )
        (found,) = getattr(space, name)(Evidence(measured))
        held += found.low <= truth <= found.high
    assert held / runs > 0.88
