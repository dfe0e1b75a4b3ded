"""The settings of pgvector, Qdrant, LanceDB and faiss that match a candidate, and how their codes differ."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isoscope._core.types import Metric
    from isoscope.compressing.compression import CompressionTrial
    from isoscope.transforms.quantize import Quantizer

LIMIT = 10
"""The number of results in the example searches."""
RESCORED = 2
"""The oversampling factor of rescoring in databases whose own codes are coarser than the measured ones."""


@dataclass(frozen=True)
class DatabaseSetting:
    """The setting of one database: lines of code, and how its codes differ from isoscope's."""

    database: str
    language: str
    lines: tuple[str, ...]
    difference: str
    """How the database differs from what was measured; empty if it stores the same numbers."""


def database_settings(trial: CompressionTrial, d: int, metric: Metric) -> list[DatabaseSetting]:
    """Return the settings for the quantizer of a trial; an empty list for unchanged vectors."""
    quantizer = trial.quantizer
    if quantizer is None:
        return []
    about = _Storage(quantizer, d, metric, trial.oversampling)
    return [_pgvector(about), _qdrant(about), _lancedb(about), _faiss(about)]


class _Storage:
    """How a database stores compressed vectors: their width, their metric and their preprocessing."""

    def __init__(self, quantizer: Quantizer, d: int, metric: Metric, oversampling: int):
        self.precision, self.scale = quantizer.precision, quantizer.scale
        self.d, self.width = d, quantizer.n_components or d
        self.oversampling = oversampling
        self.is_first = quantizer.reduction == "first" and quantizer.preprocess is None
        self.is_projected = not self.is_first
        centered = quantizer.preprocess is not None
        # ⟨q, x − m⟩ ranks like ⟨q, x⟩, but the cosine of centered vectors does not
        self.metric = "euclidean" if metric == "euclidean" else "inner product" if centered else "cosine"
        self.original_metric: str = metric
        self.is_whitened = quantizer.preprocess == "whiten"
        self.subvectors = quantizer.n_subvectors or max(1, self.width // 8)

    def without_projection(self) -> _Storage:
        """Return the storage of the original vectors, with the same precision."""
        found = copy(self)
        found.is_first, found.is_projected, found.is_whitened = True, False, False
        found.width, found.metric = self.d, self.original_metric
        return found

    @property
    def vectors(self) -> str:
        """The expression for the vectors to insert."""
        if self.is_projected:
            return "quantizer.project(vectors)"
        return "vectors" if self.width == self.d else f"vectors[:, :{self.width}]"

    @property
    def query(self) -> str:
        """The expression for the query to send."""
        if self.is_projected:
            return "quantizer.project_queries(query[None])[0]"
        return "query" if self.width == self.d else f"query[:{self.width}]"

    @property
    def comment(self) -> tuple[str, ...]:
        """Comments on the vectors to insert and to search with, if they are not the original ones."""
        return () if self.vectors == "vectors" else (f"insert {self.vectors}", f"search with {self.query}")

    @property
    def size(self) -> int:
        """The number of results to fetch before rescoring."""
        return LIMIT * max(self.oversampling, 1)

    @property
    def is_rescored_apart(self) -> bool:
        """Whether results are rescored with the original vectors, but the codes are made of other vectors."""
        return bool(self.oversampling) and self.vectors != "vectors"

    @property
    def half_range(self) -> str:
        """A hint for vectors that are inserted as float16 without being scaled to length 1 by the quantizer."""
        if self.is_projected or self.metric != "cosine":
            return ""
        return (
            "If the vectors have numbers outside of the range of float16 (6e-8 to 65,504), scale them to length 1 "
            "first; this does not change the cosine."
        )


_OPERATORS = {
    "cosine": ("<=>", "cosine"),
    "inner product": ("<#>", "ip"),
    "euclidean": ("<->", "l2"),
}


def _pgvector(about: _Storage) -> DatabaseSetting:
    k, (operator, operators) = about.width, _OPERATORS[about.metric]
    comment = tuple(f"-- {line}" for line in about.comment)
    if about.precision == "bit":
        return _pgvector_bits(about, comment)
    half = f"CREATE TABLE items (id bigserial PRIMARY KEY, embedding halfvec({k}));"
    index = f"CREATE INDEX ON items USING hnsw (embedding halfvec_{operators}_ops);"
    search = f"SELECT id FROM items ORDER BY embedding {operator} $1 LIMIT {LIMIT};"
    if about.precision == "float32":
        half, index = half.replace("halfvec", "vector"), index.replace("halfvec", "vector")
        difference = ""
    elif about.precision == "float16":
        difference = about.half_range
    else:
        difference = (
            f"pgvector stores {2 * k:,} bytes per vector: it has no {_NAMES[about.precision]} codes, and halfvec "
            f"(float16) is its smallest type except bit. {about.half_range}"
        ).rstrip()
    return DatabaseSetting("pgvector", "sql", (*comment, half, index, search), difference)


def _pgvector_bits(about: _Storage, comment: tuple[str, ...]) -> DatabaseSetting:
    if about.is_rescored_apart:
        return _pgvector_bits_apart(about)
    k = about.width
    operator, _ = _OPERATORS[about.metric]
    bits = f"binary_quantize(embedding)::bit({k})"
    lines = (
        *comment,
        f"CREATE INDEX ON items USING hnsw (({bits}) bit_hamming_ops);",
    )
    nearest = f"{bits} <~> binary_quantize($1::vector({k}))"
    if not about.oversampling:
        search: tuple[str, ...] = ("SELECT id FROM items", f"  ORDER BY {nearest}", f"  LIMIT {LIMIT};")
    else:
        search = (
            f"SET hnsw.ef_search = {max(40, about.size)};",
            "SELECT id FROM (",
            "  SELECT id, embedding FROM items",
            f"  ORDER BY {nearest}",
            f"  LIMIT {about.size}",
            f") AS nearest ORDER BY embedding {operator} $1 LIMIT {LIMIT};",
        )
    return DatabaseSetting("pgvector", "sql", (*lines, *search), _SAME_BITS)


_SAME_BITS = (
    "Same bits: binary_quantize sets a bit if the number is positive. In addition, the HNSW index is approximate."
)


def _pgvector_bits_apart(about: _Storage) -> DatabaseSetting:
    """Return a table with the original vectors and, in a second column, the bits of the projected ones."""
    k = about.width
    operator, _ = _OPERATORS[about.original_metric]
    lines = (
        "CREATE TABLE items (",
        f"  id bigserial PRIMARY KEY, embedding vector({about.d}), bits bit({k})",
        ");",
        "CREATE INDEX ON items USING hnsw (bits bit_hamming_ops);",
        f"-- insert: $1 from vectors, $2 from {about.vectors}",
        "INSERT INTO items (embedding, bits)",
        f"  VALUES ($1, binary_quantize($2::vector({k})));",
        f"-- search: $1 is query, $2 is {about.query}",
        f"SET hnsw.ef_search = {max(40, about.size)};",
        "SELECT id FROM (",
        "  SELECT id, embedding FROM items",
        f"  ORDER BY bits <~> binary_quantize($2::vector({k}))",
        f"  LIMIT {about.size}",
        f") AS nearest ORDER BY embedding {operator} $1 LIMIT {LIMIT};",
    )
    return DatabaseSetting("pgvector", "sql", lines, f"{_SAME_BITS} The column embedding keeps the original vectors.")


_QDRANT_METRICS = {"cosine": "COSINE", "inner product": "DOT", "euclidean": "EUCLID"}
_QDRANT_RESCORING = (
    f"The inserted vectors are kept too, on disk with on_disk=True. They rescore {RESCORED * LIMIT} results per search."
)
_NAMES = {"float32": "float32", "float16": "float16", "int8": "int8", "int4": "int4", "bit": "bit", "pq": "product"}


def _qdrant(about: _Storage) -> DatabaseSetting:
    if about.is_rescored_apart:
        return _qdrant_apart(about)
    if about.is_whitened and about.precision != "bit":
        found = _qdrant(about.without_projection())
        note = (
            "Insert the original vectors: Qdrant rounds queries to the range of the vectors, which whitening changes."
        )
        return replace(found, difference=f"{note} {found.difference}")
    comment = tuple(f"# {line}" for line in about.comment)
    distance = f"models.Distance.{_QDRANT_METRICS[about.metric]}"
    plain = f"models.VectorParams(\n        size={about.width}, distance={distance}"
    quantized: tuple[str, ...] = ()
    if about.precision == "float16":
        plain += ", datatype=models.Datatype.FLOAT16"
        difference = ""
    elif about.precision == "float32":
        difference = ""
    elif about.precision == "bit":
        quantized = ("models.BinaryQuantization(", "binary=models.BinaryQuantizationConfig(always_ram=True)")
        difference = (
            "Same bits, padded to a multiple of 128. The inserted vectors are kept too, on disk with on_disk=True."
        )
        plain += ", on_disk=True"
    elif about.precision == "pq":
        ratio = _nearest_ratio(4 * about.width / about.subvectors)
        quantized = (
            "models.ProductQuantization(",
            "product=models.ProductQuantizationConfig(",
            f"    compression=models.CompressionRatio.X{ratio}, always_ram=True",
            ")",
        )
        difference = f"Qdrant learns its own centroids. {_QDRANT_RESCORING}"
        plain += ", on_disk=True"
    else:
        quantized = (
            "models.ScalarQuantization(",
            "scalar=models.ScalarQuantizationConfig(",
            "    type=models.ScalarType.INT8, quantile=1.0, always_ram=True",
            ")",
        )
        ranges = {"coordinate": "a range per coordinate", "vector": "a scale per vector", "shared": "one range"}
        levels = (256 if about.precision == "int8" else 16) - (about.scale == "vector")
        own = f"isoscope's codes have {ranges[about.scale]} and {levels} levels"
        more = " Qdrant has no int4 codes: this takes twice the bytes." if about.precision == "int4" else ""
        difference = (
            f"Qdrant uses one range for all coordinates and 128 levels, also for the query, and 4 more bytes per "
            f"vector; {own}.{more} {_QDRANT_RESCORING}"
        )
        plain += ", on_disk=True"
    lines = [*comment, "client.create_collection(", '    "items",', *f"    vectors_config={plain},\n    ),".split("\n")]
    if quantized:
        first, *rest = quantized
        lines += [f"    quantization_config={first}", *(f"        {line}" for line in rest), "    ),"]
    lines.append(")")
    if not quantized:
        lines.append(f'client.query_points("items", query=query, limit={LIMIT})')
        return DatabaseSetting("Qdrant", "python", tuple(lines), difference)
    factor = about.oversampling if about.precision == "bit" else RESCORED
    oversampling = f", oversampling={float(factor)}" if factor else ""
    lines += [
        "client.query_points(",
        f'    "items", query=query, limit={LIMIT},',
        "    search_params=models.SearchParams(",
        "        quantization=models.QuantizationSearchParams(",
        f"            rescore={bool(factor)}{oversampling}",
        "        )",
        "    ),",
        ")",
    ]
    return DatabaseSetting("Qdrant", "python", tuple(lines), difference)


def _qdrant_apart(about: _Storage) -> DatabaseSetting:
    """Return a collection with two vectors per point: projected ones to search, and original ones to rescore."""
    distance = f"models.Distance.{_QDRANT_METRICS[about.original_metric]}"
    # signs do not depend on the metric; with the inner product, Qdrant does not scale the vectors
    lines = (
        f'# insert {{"original": vectors[i], "projected": {about.vectors}[i]}}',
        "client.create_collection(",
        '    "items",',
        "    vectors_config={",
        '        "original": models.VectorParams(',
        f"            size={about.d}, distance={distance}, on_disk=True,",
        "            hnsw_config=models.HnswConfigDiff(m=0),  # only for rescoring",
        "        ),",
        '        "projected": models.VectorParams(',
        f"            size={about.width}, distance=models.Distance.DOT, on_disk=True,",
        "            quantization_config=models.BinaryQuantization(",
        "                binary=models.BinaryQuantizationConfig(always_ram=True)",
        "            ),",
        "        ),",
        "    },",
        ")",
        "client.query_points(",
        '    "items",',
        "    prefetch=models.Prefetch(",
        f"        query={about.query},",
        f'        using="projected", limit={about.size},',
        "        params=models.SearchParams(",
        "            quantization=models.QuantizationSearchParams(rescore=False)",
        "        ),",
        "    ),",
        f'    query=query, using="original", limit={LIMIT},',
        ")",
    )
    difference = (
        "Same bits. The original vectors rescore the results of the search in the bits. Qdrant keeps the projected "
        f"vectors on disk too: {4 * about.width:,} more bytes per vector."
    )
    return DatabaseSetting("Qdrant", "python", lines, difference)


def _nearest_ratio(ratio: float) -> int:
    """Return the largest compression ratio of Qdrant that is not above a ratio; at least 4."""
    return max([4, *(each for each in (4, 8, 16, 32, 64) if each <= ratio)])


_LANCE_METRICS = {"cosine": "cosine", "inner product": "dot", "euclidean": "l2"}


def _lancedb(about: _Storage) -> DatabaseSetting:
    if about.precision == "bit":
        return _lancedb_bits(about)
    comment = tuple(f"# {line}" for line in about.comment)
    metric = _LANCE_METRICS[about.metric]
    if about.precision in ("float32", "float16"):
        column = f'pa.field("vector", pa.list_(pa.{about.precision}(), {about.width}))'
        search = f'table.search(query).distance_type("{metric}").limit({LIMIT})'
        lines: tuple[str, ...] = (*comment, f"schema = pa.schema([{column}])", search)
        return DatabaseSetting("LanceDB", "python", lines, about.half_range if about.precision == "float16" else "")
    if about.precision == "pq":
        index = f'IvfPq(distance_type="{metric}", num_sub_vectors={about.subvectors})'
        difference = "LanceDB learns its own centroids, in partitions of the vectors (IVF)."
    else:
        index = f'HnswSq(distance_type="{metric}")'
        twice = " It has no int4 codes: this takes twice the bytes." if about.precision == "int4" else ""
        ranged = "" if about.scale == "shared" else " isoscope's codes have finer ranges."
        difference = f"LanceDB uses one range for all coordinates.{ranged}{twice}"
    difference += f" The inserted vectors are kept in the table and rescore {RESCORED * LIMIT} results of each search."
    lines = (
        *comment,
        f"from lancedb.index import {index.partition('(')[0]}",
        "table.create_index(",
        f'    "vector", config={index}',
        ")",
        f'table.search(query).distance_type("{metric}").refine_factor({RESCORED}).limit({LIMIT})',
    )
    return DatabaseSetting("LanceDB", "python", lines, difference)


def _lancedb_bits(about: _Storage) -> DatabaseSetting:
    """Return an index with RaBitQ, which centers and rotates by itself: the original vectors unless these are wider."""
    metric = _LANCE_METRICS[about.original_metric]
    difference = (
        "LanceDB has no sign codes. IvfRq (RaBitQ) also takes about 1 bit per coordinate. It centers and rotates the "
        "vectors itself."
    )
    if about.width == about.d:
        refine = f".refine_factor({about.oversampling})" if about.oversampling else ""
        lines: tuple[str, ...] = (
            *(("# insert the original vectors",) if about.is_projected else ()),
            "from lancedb.index import IvfRq",
            "table.create_index(",
            f'    "vector", config=IvfRq(distance_type="{metric}", num_bits=1)',
            ")",
            f'table.search(query).distance_type("{metric}"){refine}.limit({LIMIT})',
        )
        return DatabaseSetting("LanceDB", "python", lines, f"{difference} The original vectors are kept in the table.")
    # the distance between projected vectors ranks like the metric, even if they are centered
    near = "cosine" if about.metric == "cosine" else "l2"
    original = ', "vector": vectors[i]' if about.oversampling else ""
    lines = (
        f'# insert {{"projected": {about.vectors}[i]{original}}}',
        "from lancedb.index import IvfRq",
        "table.create_index(",
        f'    "projected", config=IvfRq(distance_type="{near}", num_bits=1)',
        ")",
        "found = table.search(",
        f"    {about.query},",
        '    vector_column_name="projected",',
        f').distance_type("{near}").limit({about.size}).to_list()',
    )
    if about.oversampling:
        lines += (
            'originals = np.array([each["vector"] for each in found])',
            "distances = np.linalg.norm(originals - query, axis=1)"
            if about.original_metric == "euclidean"
            else "distances = -originals @ query / np.linalg.norm(originals, axis=1)",
            f"best = [found[i] for i in np.argsort(distances)[:{LIMIT}]]",
        )
        difference += " refine_factor would rescore with the projected vectors, so the last lines rescore instead."
    return DatabaseSetting("LanceDB", "python", lines, difference)


def _faiss(about: _Storage) -> DatabaseSetting:
    k = about.width
    is_scaled = about.metric == "cosine"  # centered vectors have length 1 before they are centered
    # the inner product would not divide by the length of decoded vectors; distances between unit vectors rank like it
    metric = "METRIC_INNER_PRODUCT" if about.is_whitened else "METRIC_L2"
    lines: tuple[str, ...]
    difference = ""
    if about.precision == "bit":
        lines = (
            f'index = faiss.index_binary_factory({k}, "BFlat")',
            "index.add(quantizer.encode(vectors))",
            f"index.search(quantizer.encode(query[None]), {about.size})",
        )
        difference = "faiss stores the same codes."
        if about.oversampling:
            difference += f" Then rank the {about.size} results by the original vectors."
        return DatabaseSetting("faiss", "python", lines, difference)
    if about.precision in ("int8", "int4") and about.scale != "coordinate":
        bits = about.precision[3:]
        lines = (
            "index = faiss.IndexScalarQuantizer(",
            f"    {k}, faiss.ScalarQuantizer.QT_{bits}bit_uniform, faiss.{metric}",
            ")",
        )
        if about.scale == "vector":
            difference = "faiss has no scale per vector; this setting uses one range for all numbers."
    else:
        names = {"float32": "Flat", "float16": "SQfp16", "int8": "SQ8", "int4": "SQ4", "pq": f"PQ{about.subvectors}"}
        lines = (f'index = faiss.index_factory({k}, "{names[about.precision]}", faiss.{metric})',)
        if about.precision == "pq":
            difference = "faiss learns its own centroids."
    if not difference:
        scaled_after = is_scaled and about.vectors != "vectors"
        difference = (
            "The codes are those of vectors of length 1 after the projection."
            if scaled_after
            else "faiss stores the same codes."
        )
    if about.is_whitened:
        difference += " The inner product does not divide by the length of the decoded vectors, so it finds fewer."
    rows, asked = about.vectors, "query[None]" if about.width == about.d else f"query[None, :{k}]"
    if about.is_projected:
        asked = f"quantizer.{'project_queries' if about.is_whitened else 'project'}(query[None])"
    if not about.is_projected and (is_scaled or about.width < about.d):
        rows, asked = f"np.array({rows})", f"np.array({asked})"
    lines = (*lines, f"rows = {rows}", f"queries = {asked}")
    if is_scaled:
        lines = (*lines, "faiss.normalize_L2(rows)  # so that Euclidean distance ranks like cosine")
        lines = (*lines, "faiss.normalize_L2(queries)")
    lines = (*lines, "index.train(rows)", "index.add(rows)", f"index.search(queries, {LIMIT})")
    return DatabaseSetting("faiss", "python", lines, difference)
