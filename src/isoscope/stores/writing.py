"""Writing a store to a file, batch by batch; an interruption leaves the old file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from isoscope.errors import InputError
from isoscope.files import replacing
from isoscope.stores.opening import open_store
from isoscope.stores.store import Batch, Store

_SAFETENSORS = {"f8": "F64", "f4": "F32", "f2": "F16", "i8": "I64", "i4": "I32", "i2": "I16", "i1": "I8"}
_SAFETENSORS |= {"u8": "U64", "u4": "U32", "u2": "U16", "u1": "U8"}
_VECTORS = "embedding"


def write_store(
    path: str | os.PathLike[str],
    source: Any,
    *,
    columns: bool = True,
    progress: Callable[[str, int, float], None] | None = None,
) -> int:
    """Write vectors to a file, in bounded memory, whole or not at all; gives the number of rows.

    Parameters
    ----------
    path : path
        A name that ends in `.npy`, `.safetensors` (a tensor ``embeddings``) or `.parquet` (a column ``embedding`` of
        lists of fixed size). It is replaced when all is written.
    source : store, array, iterable of Batch, or whatever `open_store` opens
        What to write. The numbers' kind is kept (float16, float32, float64, whole numbers); bfloat16 becomes float32.
    columns : bool
        Whether labels, types and text are written too, under their own names. Parquet alone can hold them: `.npy` and
        `.safetensors` hold the vectors, whatever is said here.
    progress : function, optional
        Told "writing", the rows written so far, and the share of the source that they are.

    Examples
    --------
    >>> import numpy as np
    >>> from isoscope.stores import open_store, write_store
    >>> store = open_store(np.eye(3, dtype=np.float32), text=["east", "north", "up"])
    >>> write_store("axes.parquet", store)
    3
    >>> again = open_store("axes.parquet")
    >>> again.take([1]), again.text.tolist()
    (array([[0., 1., 0.]], dtype=float32), ['east', 'north', 'up'])
    """
    path = Path(path).expanduser()
    write = _WRITERS.get(path.suffix.lower())
    if write is None:
        raise InputError(f"{path} does not say a format that can be written: need .npy, .safetensors or .parquet")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a folder: make it first, or write elsewhere")
    if path.is_dir():
        raise InputError(f"{path} is a folder: need the name of a file")
    batches, names = _batches(source, with_columns=columns and write is _write_parquet)
    first = next(batches, None)
    if first is None:
        raise InputError("the source has no rows: there is nothing to write")
    with replacing(path) as temporary:
        return write(temporary, _told(_alike(chain([first], batches), first), progress), first, names)


def _batches(source: Any, *, with_columns: bool) -> tuple[Iterator[Batch], dict[str, str]]:
    """What is to be written, and each role's name in the file."""
    if isinstance(source, Iterator) or (isinstance(source, list | tuple) and source and isinstance(source[0], Batch)):
        given = _checked(source)
        return given if with_columns else (batch._replace(columns={}) for batch in given), {}
    store = source if isinstance(source, Store) else open_store(source)
    roles = [*store.columns] if with_columns else []
    return store.batches(roles), {role: store.columns[role] for role in roles}


def _checked(batches: Iterable[Any]) -> Iterator[Batch]:
    for batch in batches:
        if not isinstance(batch, Batch):
            raise InputError(
                f"the source gives a {type(batch).__name__}: need a store, an array, or batches of a store"
            )
        if len(batch.vectors):
            yield batch


def _told(batches: Iterable[Batch], progress: Callable[[str, int, float], None] | None) -> Iterator[Batch]:
    for batch in batches:
        yield batch
        if progress is not None:
            progress("writing", batch.start + len(batch.vectors), batch.share)


def _alike(batches: Iterable[Batch], first: Batch) -> Iterator[Batch]:
    """Batches of the first one's dimensions, columns and precision, in the byte order of files."""
    dtype, dim = first.vectors.dtype.newbyteorder("<"), first.vectors.shape[1:]
    for batch in batches:
        if batch.vectors.shape[1:] != dim or batch.columns.keys() != first.columns.keys():
            raise InputError(
                f"row {batch.start} begins a batch of shape {batch.vectors.shape} with columns {list(batch.columns)}, "
                f"the first has {first.vectors.shape} with {list(first.columns)}: need the same"
            )
        if not np.can_cast(batch.vectors.dtype, dtype):
            raise InputError(
                f"row {batch.start} begins a batch of {batch.vectors.dtype}, the first is of {dtype}: cast one"
            )
        yield batch._replace(vectors=np.ascontiguousarray(batch.vectors, dtype))


def _write_npy(path: Path, batches: Iterator[Batch], first: Batch, names: dict[str, str]) -> int:
    def header(rows: int) -> bytes:
        """NumPy leaves room for any number of rows, so that the header can be written again over itself."""
        from io import BytesIO

        dtype, dim = first.vectors.dtype.newbyteorder("<"), first.vectors.shape[1]
        about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows, dim)}
        into = BytesIO()
        np.lib.format.write_array_header_1_0(into, about)
        return into.getvalue()

    return _write_flat(path, batches, header)


def _write_safetensors(path: Path, batches: Iterator[Batch], first: Batch, names: dict[str, str]) -> int:
    dtype, dim = first.vectors.dtype, first.vectors.shape[1]

    def header(rows: int) -> bytes:
        about = {
            "dtype": _SAFETENSORS[dtype.str[1:]],
            "shape": [rows, dim],
            "data_offsets": [0, rows * dim * dtype.itemsize],
        }
        text = json.dumps({"embeddings": about}).encode().ljust(160)  # room for any number of rows
        return len(text).to_bytes(8, "little") + text

    return _write_flat(path, batches, header)


def _write_flat(path: Path, batches: Iterator[Batch], header: Callable[[int], bytes]) -> int:
    """Rows behind a header that says how many, which is known at the end."""
    rows, room = 0, header(0)
    with path.open("wb") as file:
        file.write(room)
        for batch in batches:
            file.write(batch.vectors.data)
            rows += len(batch.vectors)
        final = header(rows)
        assert len(final) == len(room)
        file.seek(0)
        file.write(final)
    return rows


def _write_parquet(path: Path, batches: Iterator[Batch], first: Batch, names: dict[str, str]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    own = {role: name if (name := names.get(role, role)) != _VECTORS else role for role in first.columns}
    kind = pa.list_(pa.from_numpy_dtype(first.vectors.dtype), first.vectors.shape[1])
    fields = {own[role]: _arrow_type(values) for role, values in first.columns.items()}
    schema = pa.schema([(_VECTORS, kind), *fields.items()])
    rows = 0
    with pq.ParquetWriter(path, schema, use_dictionary=list(fields)) as writer:
        for batch in batches:
            columns = {own[role]: values for role, values in batch.columns.items()}
            try:
                beside = [pa.array(columns[name], kind) for name, kind in fields.items()]
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise InputError(
                    f"row {batch.start} begins a batch whose columns are of another kind: {error}"
                ) from error
            lists = pa.FixedSizeListArray.from_arrays(pa.array(batch.vectors.ravel()), type=kind)
            writer.write_batch(pa.RecordBatch.from_arrays([lists, *beside], schema=schema))
            rows += len(batch.vectors)
    return rows


def _arrow_type(values: np.ndarray) -> Any:
    import pyarrow as pa

    return pa.string() if values.dtype.kind in "OU" else pa.from_numpy_dtype(values.dtype)


_WRITERS = {".npy": _write_npy, ".safetensors": _write_safetensors, ".parquet": _write_parquet}
