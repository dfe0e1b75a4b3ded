"""Qdrant's engine inside this process (qdrant-edge-py), with the calls of qdrant_client that database settings use."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.services import require


class EdgeClient:
    """A collection in Qdrant's engine, which is configured and searched with objects of qdrant_client.models."""

    def __init__(self, folder: Path):
        self.engine, self.folder = require("qdrant_edge"), folder

    def create_collection(self, name: str, vectors_config: Any, quantization_config: Any = None) -> None:
        edge = self.engine
        if isinstance(vectors_config, dict):
            vectors: Any = {name: self._vectors(each) for name, each in vectors_config.items()}
        else:
            vectors = self._vectors(vectors_config)
        self.shard = edge.EdgeShard.create(
            str(self.folder),
            edge.EdgeConfig(
                vectors=vectors,
                quantization_config=self._quantization(quantization_config),
                optimizers=edge.EdgeOptimizersConfig(indexing_threshold=1),  # quantize small collections too
            ),
        )

    def insert(self, vectors: Any) -> None:
        """Insert an array, or arrays by name, and let the optimizer quantize them."""
        if isinstance(vectors, dict):
            names, columns = list(vectors), [of.tolist() for of in vectors.values()]
            rows: Any = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        else:
            rows = vectors.tolist()
        points = [self.engine.Point(i, row, {}) for i, row in enumerate(rows)]
        self.shard.update(self.engine.UpdateOperation.upsert_points(points))
        assert self.shard.optimize()

    def query_points(
        self, name: str, query: Any, limit: int, prefetch: Any = None, using: Any = None, search_params: Any = None
    ) -> Any:
        edge = self.engine
        first = []
        if prefetch is not None:
            nearest = edge.Query.Nearest(_floats(prefetch.query), prefetch.using)
            first = [edge.Prefetch(limit=prefetch.limit, query=nearest, params=self._parameters(prefetch.params))]
        found = self.shard.query(
            edge.QueryRequest(
                limit=limit,
                query=edge.Query.Nearest(_floats(query), using),
                prefetches=first,
                params=self._parameters(search_params),
            )
        )
        self.found = np.array([each.id for each in found])
        return SimpleNamespace(points=found)

    def read_codes(self) -> tuple[dict[str, Any], np.ndarray]:
        """Return the parameters and the codes that the engine wrote."""
        self.shard.flush()
        (path,) = self.folder.rglob("quantized.data")
        parameters = json.loads(path.with_name("quantized.meta.json").read_text())
        count = parameters["vector_parameters"]["count"]
        return parameters, np.frombuffer(path.read_bytes(), np.uint8).reshape(count, -1)

    def close(self) -> None:
        self.shard.close()

    def _vectors(self, given: Any) -> Any:
        edge = self.engine
        graph = given.hnsw_config
        return edge.EdgeVectorParams(
            size=given.size,
            distance=getattr(edge.Distance, given.distance.value),
            on_disk=given.on_disk,
            datatype=edge.VectorStorageDatatype.Float16 if given.datatype == "float16" else None,
            quantization_config=self._quantization(given.quantization_config),
            hnsw_config=None if graph is None else edge.HnswIndexConfig(graph.m, 100, 10_000),
        )

    def _quantization(self, given: Any) -> Any:
        if given is None:
            return None
        ((kind, options),) = given
        options = dict(options.model_dump(exclude_none=True))
        edge = self.engine
        if kind == "scalar":
            return edge.ScalarQuantizationConfig(**options | {"type": edge.ScalarType.Int8})
        if kind == "product":
            ratio = getattr(edge.CompressionRatio, options["compression"].value.upper())
            return edge.ProductQuantizationConfig(**options | {"compression": ratio})
        return edge.BinaryQuantizationConfig(**options)

    def _parameters(self, given: Any) -> Any:
        if given is None:
            return None
        options = given.quantization.model_dump(exclude_none=True)
        return self.engine.SearchParams(quantization=self.engine.QuantizationSearchParams(**options))


def _floats(query: Any) -> list[float]:
    return np.asarray(query, np.float32).tolist()
