"""Database settings with rescoring, simulated in NumPy, find what compress measures."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from isoscope import Quantizer
from isoscope.compressing.compression import CompressionTrial
from isoscope.compressing.database_settings import database_settings

N, Q, D = 1500, 100, 48
OPTIONS = [
    {},
    {"preprocess": "center"},
    {"preprocess": "rotate"},
    {"preprocess": "whiten"},
    {"n_components": 24, "reduction": "pca", "preprocess": "rotate"},
]
DIFFERENCES = {"<=>": "cosine", "<#>": "dot", "<->": "l2"}


@pytest.fixture(scope="module")
def vectors() -> tuple[np.ndarray, np.ndarray]:
    """Rows and queries with a large shared direction, in clusters."""
    rng = np.random.default_rng(5)
    centers = 1.5 * rng.standard_normal((60, D)) * np.linspace(2, 0.2, D)
    X = centers[rng.integers(60, size=N + Q)] + rng.standard_normal((N + Q, D)) * np.linspace(2, 0.2, D) + 1
    return X[:N].astype(np.float32), X[N:].astype(np.float32)


def distances(rows: np.ndarray, query: np.ndarray, metric: str) -> np.ndarray:
    if metric == "l2":
        return np.linalg.norm(rows - query, axis=1)
    lengths = np.linalg.norm(rows, axis=1) if metric == "cosine" else 1
    return -(rows @ query) / lengths


def hamming(rows: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Hamming distances between signs; a fraction breaks ties by row number, as if at random."""
    order = np.random.default_rng(0).permutation(len(rows)) / len(rows)
    return ((rows > 0) != (query > 0)).sum(axis=1) + order


def nearest(found: np.ndarray, count: int) -> np.ndarray:
    return np.argsort(found, kind="stable")[:count]


def expression(pattern: str, text: str, space: dict[str, Any], otherwise: str) -> np.ndarray:
    match = re.search(pattern, text)
    return np.asarray(eval(match[1] if match else otherwise, space))


def search_pgvector(text: str, space: dict[str, Any]) -> np.ndarray:
    """Run the printed SQL: the bits of one column, then the distances of another."""
    original = expression(r"-- insert: \$1 from (\w+)", text, space, "None")
    if original.ndim:
        coded = expression(r"-- insert: .*\$2 from (.+)", text, space, "")
        asked, coded_query = (expression(rf"-- search: .*?\${i} is ([^,\n]+)", text, space, "") for i in (1, 2))
    else:
        original = coded = expression(r"-- insert (.+)", text, space, "vectors")
        asked = coded_query = expression(r"-- search with (.+)", text, space, "query")
    pool, limit = (int(each) for each in re.findall(r"LIMIT (\d+)", text))
    chosen = nearest(hamming(coded, coded_query), pool)
    operator = re.search(r"ORDER BY embedding (\S+) \$1", text)[1]
    return chosen[nearest(distances(original[chosen], asked, DIFFERENCES[operator]), limit)]


class Recorder:
    """A stand-in for qdrant_client.models: every class keeps its arguments."""

    Distance = SimpleNamespace(COSINE="cosine", DOT="dot", EUCLID="l2")

    def __getattr__(self, name: str) -> Any:
        return lambda **options: SimpleNamespace(**options)


class FakeQdrant:
    """A collection with the vectors that the comment says, searched as Qdrant does."""

    def __init__(self, inserted: Any):
        self.inserted = inserted

    def create_collection(self, name: str, vectors_config: Any, quantization_config: Any = None) -> None:
        self.config = vectors_config

    def query_points(self, name: str, query, limit, prefetch=None, using=None, search_params=None) -> None:
        if prefetch is None:
            assert search_params.quantization.rescore
            rows, metric = self.inserted, self.config.distance
            chosen = nearest(hamming(rows, query), int(limit * search_params.quantization.oversampling))
        else:
            assert not prefetch.params.quantization.rescore
            rows, metric = self.inserted[using], self.config[using].distance
            assert rows.shape[1] == self.config[using].size
            chosen = nearest(hamming(self.inserted[prefetch.using], prefetch.query), prefetch.limit)
        self.found = chosen[nearest(distances(rows[chosen], query, metric), limit)]


def search_qdrant(text: str, space: dict[str, Any]) -> np.ndarray:
    space = dict(space)
    inserted = re.search(r"# insert (.+)", text)
    query = re.search(r"# search with (.+)", text)
    client = FakeQdrant(eval(inserted[1].replace("[i]", ""), space) if inserted else space["vectors"])
    if query:
        space["query"] = eval(query[1], space)
    exec(text, space | {"client": client, "models": Recorder()})
    return client.found


class FakeLance:
    """A table with an IVF_RQ index in one partition: RaBitQ estimates the distances (Gao and Long, 2024)."""

    def __init__(self, columns: dict[str, np.ndarray]):
        self.columns, self.pool, self.refine = columns, None, 1

    def create_index(self, *, metric: str, index_type: str, vector_column_name: str = "vector") -> None:
        assert index_type == "IVF_RQ"
        self.metric = metric
        rows = self.columns[vector_column_name].astype(np.float64)
        self.rows = rows / np.linalg.norm(rows, axis=1, keepdims=True) if metric == "cosine" else rows
        d = rows.shape[1]
        self.center = self.rows.mean(axis=0)
        self.rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((d, d)))[0]
        moved = (self.rows - self.center) @ self.rotation
        self.lengths = np.linalg.norm(moved, axis=1)
        self.codes = np.sign(moved) / np.sqrt(d)
        self.overlap = (self.codes * moved).sum(axis=1) / self.lengths

    def search(self, query: np.ndarray, vector_column_name: str = "vector") -> FakeLance:
        self.query, self.column = np.asarray(query, np.float64), vector_column_name
        return self

    def distance_type(self, metric: str) -> FakeLance:
        assert metric == self.metric
        return self

    def refine_factor(self, factor: int) -> FakeLance:
        self.refine = factor
        return self

    def limit(self, count: int) -> FakeLance:
        query = self.query / np.linalg.norm(self.query) if self.metric == "cosine" else self.query
        moved = (query - self.center) @ self.rotation
        products = self.lengths * (self.codes @ moved) / self.overlap
        near = -products - self.rows @ self.center if self.metric == "dot" else self.lengths**2 - 2 * products
        self.found = nearest(near, count * self.refine)
        if self.refine > 1:
            exact = distances(self.columns[self.column][self.found], self.query, self.metric)
            self.found = self.found[nearest(exact, count)]
        return self

    def to_list(self) -> list[dict[str, Any]]:
        return [{"row": row} | {name: of[row] for name, of in self.columns.items()} for row in self.found]


def search_lancedb(text: str, space: dict[str, Any]) -> np.ndarray:
    space = dict(space)
    inserted = re.search(r"# insert (quantizer.+|\{.+\})", text)
    found = eval(inserted[1].replace("[i]", ""), space) if inserted else space["vectors"]
    query = re.search(r"# search with (.+)", text)
    if query:
        space["query"] = eval(query[1], space)
    table = FakeLance(found if isinstance(found, dict) else {"vector": found})
    space |= {"table": table}
    exec(text, space)
    return np.array([each["row"] for each in space["best"]]) if "best" in space else table.found


def search_faiss(text: str, space: dict[str, Any]) -> np.ndarray:
    """Search the codes, then rank the results by the original vectors, as the note says."""
    quantizer, bits = space["quantizer"], lambda X: np.unpackbits(X, axis=1)
    size = int(re.search(r"index.search\(.+, (\d+)\)", text)[1])
    codes, asked = bits(quantizer.encode(space["vectors"])), bits(quantizer.encode(space["query"][None]))[0]
    chosen = nearest(hamming(codes, asked), size)
    metric = "l2" if quantizer.metric == "euclidean" else "cosine"
    return chosen[nearest(distances(space["vectors"][chosen], space["query"], metric), 10)]


SEARCHES = {"pgvector": search_pgvector, "Qdrant": search_qdrant, "LanceDB": search_lancedb, "faiss": search_faiss}


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("database", SEARCHES)
def test_rescored_settings_find_what_compress_measures(database, options, metric, vectors):
    """100 queries; ties are broken differently, and RaBitQ finds more than signs: at most 0.02 below."""
    rows, queries = vectors
    quantizer = Quantizer("bit", metric=metric, random_state=0, **options).fit(rows)
    trial = CompressionTrial("name", 8, 4 * D, 4, {}, quantizer=quantizer)
    setting = next(each for each in database_settings(trial, D, metric) if each.database == database)
    text = "\n".join(setting.lines)
    bits, asked = quantizer.project(rows), quantizer.project_queries(queries)
    measured, found = [], []
    for i, query in enumerate(queries):
        exact = nearest(distances(rows, query, "cosine" if metric == "cosine" else "l2"), 10)
        space = {"np": np, "quantizer": quantizer, "vectors": rows, "query": query}
        measured.append(len(np.intersect1d(exact, nearest(hamming(bits, asked[i]), 40))) / 10)
        found.append(len(np.intersect1d(exact, SEARCHES[database](text, space))) / 10)
    assert np.mean(measured) > 0.7
    if database == "LanceDB":
        assert np.mean(found) >= np.mean(measured) - 0.02
    else:
        assert np.mean(found) == pytest.approx(np.mean(measured), abs=0.02)


def test_qdrant_runs_the_two_stage_search(vectors):
    qdrant_client = pytest.importorskip("qdrant_client")
    rows, queries = vectors
    quantizer = Quantizer("bit", random_state=0, n_components=24, reduction="pca", preprocess="rotate").fit(rows)
    trial = CompressionTrial("name", 8, 4 * D, 4, {}, quantizer=quantizer)
    lines = next(each.lines for each in database_settings(trial, D, "cosine") if each.database == "Qdrant")
    start = lines.index("client.query_points(")
    models, client = qdrant_client.models, qdrant_client.QdrantClient(":memory:")
    space = {"client": client, "models": models, "quantizer": quantizer}
    exec("\n".join(lines[:start]), space)
    signs = np.sign(quantizer.project(rows))  # the local mode does not quantize
    client.upsert(
        "items",
        [
            models.PointStruct(id=i, vector={"original": rows[i].tolist(), "projected": signs[i].tolist()})
            for i in range(len(rows))
        ],
    )
    for query in queries[:5]:
        space["query"] = query
        space["answer"] = None
        exec("\n".join(["answer = client.query_points(", *lines[start + 1 :]]), space)
        found = [point.id for point in space["answer"].points]
        similarity = distances(rows, query, "cosine")
        assert len(found) == 10
        assert similarity[found].tolist() == sorted(similarity[found].tolist())
