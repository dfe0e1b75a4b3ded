"""Database settings: names, widths and metrics; the code is valid, and faiss gives the same codes."""

from __future__ import annotations

import ast
import itertools

import numpy as np
import pytest

from isoscope import Quantizer
from isoscope.compressing.compression import CompressionTrial
from isoscope.compressing.database_settings import database_settings
from tests.services import require

PRECISIONS = ["float32", "float16", "int8", "int4", "bit", "pq"]


def settings(precision="int8", oversampling=0, metric="cosine", **options):
    trial = CompressionTrial(
        "name", 8, 256 if oversampling else 0, oversampling, {}, quantizer=Quantizer(precision, **options)
    )
    return {each.database: each for each in database_settings(trial, 64, metric)}


@pytest.mark.parametrize("options", [{}, {"n_components": 32}, {"preprocess": "rotate"}, {"reduction": "pca"}], ids=str)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_python_code_is_valid_and_narrow(precision, options):
    for metric, oversampling in itertools.product(("cosine", "euclidean"), (0, 4) if precision == "bit" else (0,)):
        for each in settings(precision, oversampling, metric, **options).values():
            if each.language == "python":
                ast.parse("\n".join(each.lines))
            narrow = (oversampling and options) or precision in ("int8", "int4", "pq")
            assert all(len(line) <= (78 if narrow else 90) for line in each.lines)


def test_metrics_follow_the_preprocessing():
    assert "<=>" in settings("float16")["pgvector"].lines[-1]
    assert "<#>" in settings("float16", preprocess="rotate")["pgvector"].lines[-1]
    assert "<->" in settings("float16", metric="euclidean", preprocess="rotate")["pgvector"].lines[-1]
    assert "Distance.DOT" in "\n".join(settings("int8", preprocess="center")["Qdrant"].lines)


def test_projected_vectors_are_inserted():
    for each in settings("int8", preprocess="rotate").values():
        assert any("quantizer.project(vectors)" in line for line in each.lines)
    for each in settings("int8", n_components=32).values():
        assert any("vectors[:, :32]" in line for line in each.lines)
    for each in settings("int8").values():
        assert not any("insert" in line for line in each.lines)


def test_levels_are_compared_with_levels():
    found = {
        (precision, scale): settings(precision, scale=scale)["Qdrant"].difference
        for precision in ("int8", "int4")
        for scale in ("coordinate", "vector", "shared")
    }
    assert all("128 levels" in text for text in found.values())
    assert "one range and 256 levels" in found["int8", "shared"]
    assert "one range and 16 levels" in found["int4", "shared"]
    assert "a scale per vector and 255 levels" in found["int8", "vector"]
    assert "a range per coordinate and 16 levels" in found["int4", "coordinate"]


def test_bits_are_rescored():
    found = settings("bit", oversampling=4)
    assert any("LIMIT 40" in line for line in found["pgvector"].lines)
    assert any("oversampling=4.0" in line for line in found["Qdrant"].lines)
    assert any("refine_factor(4)" in line for line in found["LanceDB"].lines)
    assert "40" in found["faiss"].difference
    assert "rescore=False" in "\n".join(settings("bit")["Qdrant"].lines)


@pytest.mark.parametrize("options", [{"preprocess": "rotate"}, {"n_components": 32}], ids=str)
def test_only_original_vectors_are_called_original(options):
    for precision in ("int8", "bit", "pq"):
        for name in ("Qdrant", "pgvector"):
            assert "original" not in settings(precision, **options)[name].difference
    for name in ("Qdrant", "pgvector"):
        assert "original vectors" in settings("bit", 4, **options)[name].difference


def test_float16_columns_need_vectors_within_its_range():
    """Scores are those of vectors scaled to length 1; raw vectors may overflow. Qdrant and faiss get scaled ones."""
    for options in ({}, {"n_components": 32}):
        found = settings("float16", **options)
        for name in ("pgvector", "LanceDB"):
            assert "65,504" in found[name].difference
            assert "length 1" in found[name].difference
        assert "normalize" in "\n".join(found["faiss"].lines)
        assert "Distance.COSINE" in "\n".join(found["Qdrant"].lines)
    assert "65,504" in settings("int8")["pgvector"].difference  # halfvec
    assert settings("float16", preprocess="rotate")["pgvector"].difference == ""  # project scales them
    assert settings("float32")["pgvector"].difference == ""


def test_nothing_is_set_for_unchanged_vectors():
    assert database_settings(CompressionTrial("as it is", 256, 0, 0, {}), 64, "cosine") == []


def test_qdrant_accepts_the_settings():
    qdrant_client = require("qdrant_client")
    for precision, oversampling in [("float16", 0), ("int8", 0), ("bit", 0), ("bit", 4), ("pq", 0)]:
        lines = settings(precision, oversampling)["Qdrant"].lines
        client = qdrant_client.QdrantClient(":memory:")
        space = {"client": client, "models": qdrant_client.models, "query": [0.1] * 64}
        exec("\n".join(lines), space)  # the code of the settings themselves
        assert client.get_collection("items").config.params.vectors.size == 64


@pytest.mark.parametrize(
    ("precision", "scale"), [("int8", "coordinate"), ("int4", "shared"), ("float16", "coordinate")]
)
def test_faiss_index_has_the_codes_of_the_quantizer(precision, scale, rng):
    faiss = require("faiss")
    X = rng.standard_normal((500, 64)).astype(np.float32)
    quantizer = Quantizer(precision, scale=scale, metric="euclidean").fit(X)
    space = {"faiss": faiss, "vectors": X, "query": X[0]}
    exec("\n".join(settings(precision, metric="euclidean", scale=scale)["faiss"].lines), space)
    codes = faiss.vector_to_array(space["index"].codes).reshape(len(X), -1)
    assert (codes != quantizer.encode(X)).mean() <= 1e-4  # values at the border of two intervals
