"""Searches in Qdrant, LanceDB and faiss with the printed settings, and the SQL of pgvector in NumPy.

All find at least what compress measures.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isoscope import Quantizer
from isoscope.compressing.compression import CompressionTrial
from isoscope.compressing.database_settings import database_settings
from tests.compressing.qdrant_engine import EdgeClient
from tests.services import require

N, Q, D = 1500, 50, 48
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


def find_in_pgvector(text: str, space: dict[str, Any]) -> np.ndarray:
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


Search = Callable[[np.ndarray], np.ndarray]
"""A search for the rows of a query."""


def open_pgvector(text: str, space: dict[str, Any], folder: Path) -> Search:
    return lambda query: find_in_pgvector(text, {**space, "query": query})


def inserted(text: str, space: dict[str, Any]) -> Any:
    """Return the vectors that the settings say to insert: an array, or arrays by name."""
    match = re.search(r"# insert (quantizer.+|vectors\[.+|\{.+\})", text)
    return eval(match[1].replace("[i]", ""), space) if match else space["vectors"]


def asked(text: str, space: dict[str, Any]) -> np.ndarray:
    """Return the query that the settings say to search with."""
    return expression(r"# search with (.+)", text, space, "query")


def split(text: str, start: str) -> tuple[str, str]:
    """Return the code that creates an index, and the code that searches."""
    before, found, after = text.partition(start)
    return before, found + after


def open_qdrant(text: str, space: dict[str, Any], folder: Path) -> Search:
    client = EdgeClient(folder)
    space = {**space, "client": client, "models": require("qdrant_client").models}
    create, search = split(text, "client.query_points(")
    exec(create, space)
    client.insert(inserted(text, space))

    def find(query: np.ndarray) -> np.ndarray:
        own = {**space, "query": query}
        own["query"] = asked(text, own)
        exec(search, own)
        return client.found

    return find


def open_lancedb(text: str, space: dict[str, Any], folder: Path) -> Search:
    pa = require("pyarrow")
    vectors = inserted(text, space)
    columns = vectors if isinstance(vectors, dict) else {"vector": vectors}
    arrays = {
        name: pa.FixedSizeListArray.from_arrays(np.ascontiguousarray(of, np.float32).ravel(), of.shape[1])
        for name, of in columns.items()
    }
    table = require("lancedb").connect(folder).create_table("items", pa.table({"id": np.arange(N), **arrays}))
    before, found, search = text.partition("found = ")
    if not found:
        before, search = split(text, "table.search(")
    space = {**space, "table": table, "pa": pa}
    exec(before, space)

    def find(query: np.ndarray) -> np.ndarray:
        own = {**space, "query": query}
        own["query"] = asked(text, own)
        exec(f"found = {search}", own)
        results = own.get("best") or own["found"]
        return np.array([each["id"] for each in (results if isinstance(results, list) else results.to_list())])

    return find


def open_faiss(text: str, space: dict[str, Any], folder: Path) -> Search:
    """Run the lines; results of bits are then ranked by the original vectors, as the note says."""
    quantizer, rows = space["quantizer"], space["vectors"]
    space = {**space, "faiss": require("faiss")}
    create, search = split(text, "index.search(")
    exec(create, space | {"query": rows[0]}, space)
    _, found, after = create.partition("\nrows = ")
    ask = "\n".join(line for line in (found + after).split("\n") if not line.startswith("index."))
    metric = "l2" if quantizer.metric == "euclidean" else "cosine"

    def find(query: np.ndarray) -> np.ndarray:
        own = {**space, "query": query}
        exec(f"{ask}\nfound = {search}", own)
        chosen = own["found"][1][0]
        return chosen[nearest(distances(rows[chosen], query, metric), 10)]

    return find


DATABASES = {"pgvector": open_pgvector, "Qdrant": open_qdrant, "LanceDB": open_lancedb, "faiss": open_faiss}


def open_search(database: str, quantizer: Quantizer, rows: np.ndarray, folder: Path, oversampling: int = 0) -> Search:
    trial = CompressionTrial("name", 8, 4 * D, oversampling, {}, quantizer=quantizer)
    setting = next(each for each in database_settings(trial, D, quantizer.metric) if each.database == database)
    return DATABASES[database](
        "\n".join(setting.lines), {"np": np, "quantizer": quantizer, "vectors": rows}, folder / "items"
    )


def recall_of(search: Search, rows: np.ndarray, queries: np.ndarray, metric: str) -> float:
    near = "cosine" if metric == "cosine" else "l2"
    hits = [len(np.intersect1d(nearest(distances(rows, query, near), 10), search(query))) / 10 for query in queries]
    return float(np.mean(hits))


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("database", DATABASES)
def test_rescored_settings_find_what_compress_measures(database, options, metric, vectors, tmp_path):
    """50 queries; ties are broken differently, and RaBitQ finds more than signs: at most 0.02 below."""
    rows, queries = vectors
    quantizer = Quantizer("bit", metric=metric, random_state=0, **options).fit(rows)
    bits = quantizer.project(rows)
    measured = recall_of(
        lambda query: nearest(hamming(bits, quantizer.project_queries(query[None])[0]), 40), rows, queries, metric
    )
    found = recall_of(open_search(database, quantizer, rows, tmp_path, 4), rows, queries, metric)
    assert measured > 0.7
    if database == "LanceDB":
        assert found >= measured - 0.02
    else:
        assert found == pytest.approx(measured, abs=0.02)


CODES = [
    ("float16", {}),
    ("int8", {}),
    ("int8", {"n_components": 24}),
    ("int8", {"scale": "shared", "preprocess": "center"}),
    ("int4", {"scale": "vector", "preprocess": "rotate"}),
    ("int4", {"preprocess": "whiten"}),
    ("int4", {"n_components": 24, "reduction": "pca"}),
    ("pq", {"n_subvectors": 12}),
]
SEARCHED = [
    (database, *codes)
    for database in ("Qdrant", "LanceDB", "faiss")
    for codes in CODES
    if (database, codes[0]) != ("faiss", "pq")  # faiss needs 14 seconds to learn; test_quantize compares the codes
]


@pytest.mark.parametrize(("database", "precision", "options"), SEARCHED, ids=str)
def test_settings_find_what_compress_measures(database, precision, options, vectors, tmp_path):
    """50 queries; the inner product in faiss does not divide by the length of decoded rows: at most 0.02 below."""
    rows, queries = vectors
    quantizer = Quantizer(precision, random_state=0, **options).fit(rows)
    decoded = quantizer.transform(rows)
    measured = recall_of(lambda query: nearest(distances(decoded, query, "cosine"), 10), rows, queries, "cosine")
    found = recall_of(open_search(database, quantizer, rows, tmp_path), rows, queries, "cosine")
    # faiss has no scale per vector, and does not divide by the length of whitened vectors, as the settings say
    differs = database == "faiss" and (options.get("scale") == "vector" or options.get("preprocess") == "whiten")
    assert measured > 0.5
    assert found >= measured - (0.1 if differs else 0.02)


def test_codes_of_qdrant(vectors, tmp_path):
    """Bits are equal; int8 codes have one range and 128 levels, as the settings say."""
    rows, _ = vectors
    quantizer = Quantizer("bit").fit(rows)
    client = inspect.getclosurevars(open_search("Qdrant", quantizer, rows, tmp_path)).nonlocals["client"]
    _, codes = client.read_codes()
    assert np.array_equal(codes[:, : quantizer.code_size], quantizer.encode(rows))
    assert codes.shape[1] * 8 == 128
    quantizer = Quantizer("int8", scale="shared").fit(rows)
    client = inspect.getclosurevars(open_search("Qdrant", quantizer, rows, tmp_path / "int8")).nonlocals["client"]
    parameters, codes = client.read_codes()
    assert parameters["offset"] == pytest.approx(float(quantizer.low_[0]), rel=1e-6)
    assert parameters["alpha"] == pytest.approx(float(quantizer.span_[0]) / 127, rel=1e-6)
    levels = (quantizer.project(rows) - quantizer.low_) * (127 / quantizer.span_)
    assert (codes[:, 4 : 4 + D] != np.floor(levels + 0.5)).mean() <= 1e-4  # values at the border of two levels
    assert codes.shape[1] == 4 + D


def test_bits_of_lancedb_take_one_bit_per_dimension(vectors, tmp_path):
    rows, _ = vectors
    search = open_search("LanceDB", Quantizer("bit").fit(rows), rows, tmp_path)
    (index,) = inspect.getclosurevars(search).nonlocals["space"]["table"].list_indices()
    assert index.index_type == "IvfRq"
    assert index.index_details["compression"]["num_bits"] == 1
