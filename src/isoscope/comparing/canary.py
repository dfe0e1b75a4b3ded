"""Canary files: the vectors of a few fixed texts, kept to compare the next deployment with this one."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import isoscope
from isoscope._core.errors import (
    FileFormatError,
    InputError,
    NotFoundError,
    OutputError,
    ParameterError,
    TooFewRowsError,
    plural,
)
from isoscope._core.missing import DROP_HINT
from isoscope._core.random import check_seed
from isoscope._io.files import atomic_replace
from isoscope._io.json import shorten
from isoscope.advising.task_inputs import open_one_layer
from isoscope.comparing.paired import ENOUGH_PAIRS
from isoscope.stores.sampling import row_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isoscope._core.types import Column, Missing, Seed, Zeros
    from isoscope.stores.store import Store

SCHEMA = "isoscope.canary/1"
MIN_TEXTS = ENOUGH_PAIRS
"""The smallest number of texts: with fewer, a rotation cannot be distinguished from a different space."""
_KEY = b"isoscope.canary"


def canary(
    source: Any,
    output: str | os.PathLike[str],
    *,
    texts: Sequence[str] | None = None,
    rows: int = 300,
    vectors: str | None = None,
    ids: Column | None = None,
    text: str | None = None,
    layer: int | None = None,
    seed: Seed = 0,
    missing: Missing = "error",
    zeros: Zeros = "keep",
) -> Path:
    """Write a canary file: the vectors of a few fixed texts, for a comparison with the next deployment.

    Keep the file with the index. After the next deployment, embed the same texts again and compare them with
    `isoscope.same`. The file is a Parquet file with the columns id, text and vector, so every tool can read it. It
    contains checksums, so that `isoscope.same` rejects a file that was changed.

    Parameters
    ----------
    source : path, array, DataFrame, Dataset or store
        The vectors with their texts, such as the result of `isoscope.embed`; anything that `open_store` opens.
    output : path
        The file to write; it is written atomically.
    texts : list of str, optional
        The texts or ids of the rows to keep. By default, `rows` random rows.
    rows : int
        The number of random rows to keep if `texts` is not passed.
    ids : column name, or one value per row, optional
        The ids of the rows.
    vectors, text : str, optional
        The columns of the source; see `open_store`.
    layer : int, optional
        The layer to read, if the source has hidden states of several.
    seed : int, sequence of int, SeedSequence, Generator or None
        Random seed for the choice of rows.
    missing : {"error", "drop"}
        Raise an error for incomplete rows and for unknown texts, or leave them out.
    zeros : {"keep", "drop"}
        Keep rows of zeros, or leave them out.

    Returns
    -------
    Path
        The path of the file.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((100, 8))
    >>> store = isoscope.open_store(X, text=[f"text {i}" for i in range(100)])
    >>> path = isoscope.canary(store, "canary.parquet")
    >>> isoscope.same(path, isoscope.open_store(2 * X, text=store.text)).answer
    'rescaled'
    """
    if Path(output).suffix.lower() not in (".parquet", ".pq"):
        raise OutputError(f"{output} is not a Parquet file: choose a name that ends in .parquet")
    store, _ = open_one_layer(source, layer, vectors=vectors, ids=ids, text=text, missing=missing, zeros=zeros)
    if not {"text", "ids"} & store.columns.keys():
        raise NotFoundError(
            f"{store.name} has no texts or ids, which are needed to match its rows later: pass ids or text (CLI: "
            "--ids, --columns text=NAME)"
        )
    if texts is not None:
        found = _find_rows(store, [str(each) for each in texts])
        unknown = int((found < 0).sum())
        if unknown and missing == "error":
            first = next(each for each, row in zip(texts, found, strict=True) if row < 0)
            raise NotFoundError(
                f"{plural(unknown, 'text')} {'is' if unknown == 1 else 'are'} not in {store.name} (first: "
                f"{shorten(repr(first))}): "
                'pass missing="drop" (CLI: --missing drop) to leave them out'
            )
        chosen = np.unique(found[found >= 0])
    else:
        if rows < MIN_TEXTS:
            raise ParameterError(f"rows is {rows}: need at least {MIN_TEXTS}")
        chosen = np.sort(np.argsort(row_keys(0, len(store), check_seed(seed)))[:rows])
    numbers = np.asarray(store.take(chosen))
    usable = np.isfinite(numbers).all(axis=1)
    if not usable.all() and missing == "error":
        raise InputError(
            f"{store.name} contains NaN or infinity, first in row {chosen[np.argmin(usable)]}: fix these rows, or "
            f"{DROP_HINT}"
        )
    if zeros == "drop":
        usable &= numbers.any(axis=1)
    if usable.sum() < MIN_TEXTS:
        raise TooFewRowsError(
            f"the canary has {plural(int(usable.sum()), 'text')}: need at least {MIN_TEXTS}; about 300 are recommended"
        )
    chosen, numbers = chosen[usable], numbers[usable]
    contents = None if "text" not in store.columns else store.column("text", chosen)
    names = None if "ids" not in store.columns else store.column("ids", chosen)
    repeated = [] if names is None else [name for name, count in Counter(names.tolist()).items() if count > 1]
    if repeated:
        raise InputError(
            f"{plural(len(repeated), 'id')} of {store.name} occur{'s' * (len(repeated) == 1)} on several rows (first: "
            f"{shorten(repr(repeated[0]))}): need a different id for each row"
        )
    return _write(Path(output), numbers, contents, names, store.name)


def _find_rows(store: Store, names: list[str]) -> np.ndarray:
    """Return the first row with each id or text; −1 for an unknown name."""
    known: dict[str, int] = {}
    for role in ("text", "ids"):
        values = store.column(role) if role in store.columns else None
        for row, value in enumerate([] if values is None else values.tolist()):
            known.setdefault(str(value), row)
    return np.fromiter((known.get(name, -1) for name in names), np.int64, len(names))


def _write(path: Path, numbers: np.ndarray, contents: np.ndarray | None, names: np.ndarray | None, source: str) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    keys = _keys(contents, names)
    if numbers.dtype.kind not in "fiu":
        numbers = numbers.astype(np.float32)
    flat = pa.array(numbers.ravel())
    columns = {"id": pa.array(keys)}
    if contents is not None:
        columns["text"] = pa.array([str(each) for each in contents])
    columns["vector"] = pa.FixedSizeListArray.from_arrays(flat, numbers.shape[1])
    table = pa.table(columns)
    about = {
        "schema": SCHEMA,
        "isoscope": isoscope.__version__,
        "source": source,
        "rows": len(numbers),
        "dimensions": numbers.shape[1],
        "vectors": _digest_vectors(table),
        "texts": _digest_texts(table),
    }
    table = table.replace_schema_metadata({_KEY: json.dumps(about).encode()})
    with atomic_replace(path) as temporary:
        pq.write_table(table, temporary)
    return path


def _keys(contents: np.ndarray | None, names: np.ndarray | None) -> list[str]:
    """Return the ids of the rows; without ids, a digest of each text, which is the same in the next deployment."""
    if names is not None:
        return [str(name) for name in names.tolist()]
    assert contents is not None
    return [hashlib.blake2b(str(each).encode("utf-8", "replace"), digest_size=8).hexdigest() for each in contents]


def _digest_vectors(table: Any) -> str:
    values = np.concatenate([chunk.flatten().to_numpy(zero_copy_only=False) for chunk in table["vector"].chunks])
    return hashlib.blake2b(np.ascontiguousarray(values).tobytes(), digest_size=16).hexdigest()


def _digest_texts(table: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in ("id", "text"):
        if name in table.column_names:
            digest.update(json.dumps([name, table[name].to_pylist()]).encode())
    return digest.hexdigest()


def is_canary(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a canary file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open(path, "rb") as file:
            if file.read(4) != b"PAR1":
                return False
        return _KEY in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowInvalid):
        return False


def check_canary(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the description of a canary file; raise an error if its vectors or texts were changed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        about: dict[str, Any] = json.loads(table.schema.metadata[_KEY])
        if about["schema"] != SCHEMA:
            raise FileFormatError(f"{path} has the schema {shorten(str(about['schema']))}: upgrade isoscope")
        changed = [
            part
            for part, digest in (("vectors", _digest_vectors), ("texts", _digest_texts))
            if digest(table) != about[part]
        ]
    except (pa.ArrowInvalid, LookupError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise FileFormatError(f"{path} is not a complete canary file: create it again") from error
    if changed:
        raise FileFormatError(
            f"the {' and '.join(changed)} of {path} were changed after it was written: restore the file, or create it "
            "again"
        )
    return about
