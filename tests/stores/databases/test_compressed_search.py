"""Searches in pgvector with the settings that compress prints find what compress measured."""

from __future__ import annotations

import numpy as np
import pytest

import isoscope
from isoscope.compressing.compression import CompressionTrial
from isoscope.compressing.database_settings import database_settings

N, D, Q = 500, 32, 60


@pytest.fixture(scope="module")
def vectors() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = (rng.standard_normal((N + Q, D)) * np.linspace(2, 0.4, D) + 0.3).astype(np.float32)
    return X[:N], X[N:]


def unit(X: np.ndarray) -> np.ndarray:
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def exact(rows: np.ndarray, queries: np.ndarray) -> np.ndarray:
    return np.argsort(-unit(queries) @ unit(rows).T, axis=1)[:, :10]


def recall(found: list[list[int]], expected: np.ndarray) -> float:
    return float(np.mean([len(set(a) & set(b)) for a, b in zip(found, expected.tolist(), strict=True)])) / 10


def setting(quantizer: isoscope.Quantizer, database: str, oversampling: int = 0) -> tuple[str, ...]:
    trial = CompressionTrial("name", 8, 0, oversampling, {}, quantizer=quantizer)
    return next(each.lines for each in database_settings(trial, D, "cosine") if each.database == database)


def search_postgres(postgres, lines: tuple[str, ...], queries: np.ndarray, kind: str) -> list[list[int]]:
    """Run the search statements of a setting, with exact scans, so that only the codes matter."""
    start = next(i for i, line in enumerate(lines) if line.startswith("SELECT"))
    statement = " ".join(lines[start:]).replace("$1::vector", "%(q)s::vector").replace("$1", f"%(q)s::{kind}")
    found = []
    with postgres.connect() as connection:
        connection.execute("SET enable_indexscan = off")
        for query in queries:
            text = "[" + ",".join(map(repr, query.tolist())) + "]"
            found.append([row[0] for row in connection.execute(statement, {"q": text}).fetchall()])
    return found


def test_halfvec_finds_what_float16_codes_find(postgres, vectors):
    rows, queries = vectors
    quantizer = isoscope.Quantizer("float16").fit(rows)
    postgres.fill("items", rows)
    before = search_postgres(postgres, ("SELECT id FROM items ORDER BY embedding <=> $1 LIMIT 10;",), queries, "vector")
    assert recall(before, exact(rows, queries)) == 1
    postgres.fill("items", rows, "halfvec")
    lines = setting(quantizer, "pgvector")
    postgres.run(lines[1])  # the index of the setting
    found = search_postgres(postgres, lines, queries, f"halfvec({D})")
    expected = exact(quantizer.transform(rows), queries)
    assert recall(found, expected) >= 0.995  # halfvec also rounds the query
    assert recall(found, exact(rows, queries)) >= 0.99


def test_bits_with_rescoring_find_what_compress_measures(postgres, vectors):
    rows, queries = vectors
    quantizer = isoscope.Quantizer("bit").fit(rows)
    postgres.fill("items", rows)
    for oversampling in (0, 4, 10):
        lines = setting(quantizer, "pgvector", oversampling)
        postgres.run(lines[0])
        found = search_postgres(postgres, lines, queries, f"vector({D})")
        bits, asked = quantizer.transform(rows), quantizer.transform(queries)
        pool = np.argsort(-asked @ bits.T, axis=1, kind="stable")[:, : 10 * max(oversampling, 1)]
        expected = np.mean([len(np.intersect1d(a, b)) / 10 for a, b in zip(pool, exact(rows, queries), strict=True)])
        # equal Hamming distances are ordered differently: 60 queries, so the means differ by less than 0.08
        assert recall(found, exact(rows, queries)) == pytest.approx(expected, abs=0.08)
    assert expected > 0.5


@pytest.mark.parametrize(
    "options", [{"preprocess": "rotate"}, {"preprocess": "rotate", "reduction": "pca", "n_components": 24}], ids=str
)
def test_bits_of_projected_vectors_are_rescored_with_the_original_ones(options, postgres, vectors):
    """Equal Hamming distances are ordered differently: 60 queries, so the means differ by less than 0.08."""
    rows, queries = vectors
    quantizer = isoscope.Quantizer("bit", random_state=0, **options).fit(rows)
    statements = [
        " ".join(line for line in each.split("\n") if not line.startswith("--")).strip()
        for each in "\n".join(setting(quantizer, "pgvector", 4)).split(";\n")
    ]
    create, index, insert, beam, search = (
        each.replace("$2", "%(b)s").replace("$1", "%(a)s::vector") for each in statements
    )

    def pair(a: np.ndarray, b: np.ndarray) -> dict[str, str]:
        return {"a": str(a.tolist()), "b": str(b.tolist())}

    projected, asked = quantizer.project(rows), quantizer.project_queries(queries)
    with postgres.connect() as connection:
        for statement in ("DROP TABLE IF EXISTS items CASCADE", create, index, beam, "SET enable_indexscan = off"):
            connection.execute(statement)
        for a, b in zip(rows, projected, strict=True):
            connection.execute(insert, pair(a, b))
        found = [
            [number - 1 for (number,) in connection.execute(search.rstrip(";"), pair(a, b)).fetchall()]
            for a, b in zip(queries, asked, strict=True)
        ]
    near = np.argsort(-np.sign(asked) @ np.sign(projected).T, axis=1, kind="stable")[:, :40]
    measured = recall(near.tolist(), exact(rows, queries))
    assert recall(found, exact(rows, queries)) == pytest.approx(measured, abs=0.08)
    assert measured > 0.5


def test_bits_of_pgvector_are_those_of_the_quantizer(postgres, vectors):
    rows, _ = vectors
    postgres.fill("items", rows)
    found = postgres.run(f"SELECT binary_quantize(embedding)::bit({D})::text FROM items ORDER BY id")
    bits = np.unpackbits(isoscope.Quantizer("bit").fit(rows).encode(rows), axis=1, bitorder="little")
    assert [text for (text,) in found] == ["".join(map(str, row)) for row in bits.tolist()]
