"""Stores over tables in memory: data frames of any library, pyarrow tables and Hugging Face datasets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np

from isoscope._core.arrays import blocks
from isoscope._core.errors import FileFormatError, InputError, ParameterError
from isoscope.stores.arrow import ArrowStore

if TYPE_CHECKING:
    from isoscope.stores.arrow import Pieces
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.store import Store


def is_frame(source: Any) -> bool:
    """Return whether an object is a data frame, a table, a column of one, or a dataset."""
    if isinstance(source, np.ndarray | list | tuple):
        return False
    return _library(source) in _NAMES or _wrap(source) is not None


def open_frame(source: Any, wanted: ColumnSpec) -> Store:
    """Open a data frame of any library that narwhals supports, a pyarrow table, or a dataset.

    Of a pandas data frame or a dataset, only one batch of rows is copied at a time. A lazy frame is collected.
    """
    name = _NAMES.get(_library(source), "data frame")
    pieces = _open_dataset(source) if name == "dataset" else _open_table(source, wanted)
    return FrameStore(name, f"the {name}", pieces, wanted)


class FrameStore(ArrowStore):
    """A table in memory."""

    def slice(self, start: int, stop: int) -> tuple[Store, int]:
        """See `Store`."""
        return self, start

    def _column(self, batch: Any, name: str) -> np.ndarray:
        """Return dates, times and UUIDs as Python objects, so that they give the same text as a list of them."""
        import pyarrow.types as kinds

        column = batch.column(name)
        if not kinds.is_temporal(column.type) and getattr(column.type, "extension_name", "") != "arrow.uuid":
            return super()._column(batch, name)
        values = np.empty(len(column), object)
        values[:] = column.to_pylist()
        return values


class _Table:
    """A pyarrow table."""

    def __init__(self, table: Any) -> None:
        self.schema = table.schema
        self.lengths = [table.num_rows]
        self._table = table

    def full_schema(self) -> Any:
        return self.schema

    def read(self, piece: int, names: list[str], rows: int) -> Iterator[Any]:
        return iter(self._table.select(names).to_batches(max_chunksize=rows))


class _Frame:
    """A pandas DataFrame, converted to Arrow a few rows at a time; NaN in a column of numbers stays NaN.

    A column that Arrow cannot represent is ignored, unless the caller requested it or it contains lists, which may be
    the vectors.
    """

    def __init__(self, frame: Any, wanted: ColumnSpec) -> None:
        self._frame = frame.set_axis([_column_name(name) for name in frame.columns], axis=1)
        if not self._frame.columns.is_unique:
            raise ParameterError("the data frame has two columns with the same name: rename one")
        self.lengths = [len(frame)]
        self._texts = {name for name in self._frame.columns if _needs_text(self._frame[name])}
        readable = [name for name in self._frame.columns if name in wanted.names or self._is_readable(name)]
        self.schema = self._batch(readable or list(self._frame.columns), slice(0, 1000)).schema

    def _is_readable(self, name: str) -> bool:
        if _is_list(_first(self._frame[name])):
            return True
        try:
            self._batch([name], slice(0, 1000))
        except InputError:
            return False
        return True

    def full_schema(self) -> Any:
        """Return the schema inferred from all rows; the first values may be missing, or integers by coincidence."""
        import pyarrow as pa

        unsure = [field.name for field in self.schema if self._frame[field.name].dtype == object]
        kinds = {
            name: self._column(self._frame[name]).type for name in unsure if not _is_list(_first(self._frame[name]))
        }
        return pa.schema([field.with_type(kinds.get(field.name, field.type)) for field in self.schema])

    def read(self, piece: int, names: list[str], rows: int) -> Iterator[Any]:
        return (self._batch(names, part) for part in blocks(self.lengths[0], rows))

    def _batch(self, names: list[str], part: slice) -> Any:
        import pyarrow as pa

        return pa.RecordBatch.from_arrays([self._column(self._frame[name].iloc[part]) for name in names], names)

    def _column(self, values: Any) -> Any:
        import pyarrow as pa

        plain = getattr(values.dtype, "kind", "O") == "f" and not hasattr(values.dtype, "na_value")
        try:
            if values.name in self._texts:
                return pa.array(values.map(str, na_action="ignore"), pa.string())
            if plain or _is_list(_first(values)):
                return pa.array(values.to_numpy(), from_pandas=False)
            return pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
            why = " ".join(str(error).split())
            raise FileFormatError(
                f"column {values.name} of the data frame cannot be read: {why}; need values of one type"
            ) from error


def _column_name(name: Any) -> str:
    """Return the name of a column as text; the levels of a MultiIndex are joined by underscores."""
    return "_".join(str(level) for level in name if level != "") if isinstance(name, tuple) else str(name)


def _needs_text(values: Any) -> bool:
    """Return whether values are read as text: integers outside the range of int64, or UUIDs that Arrow rejects."""
    first = _first(values)
    if isinstance(first, int | float):
        return any(isinstance(v, int) and not -(2**63) <= v < 2**63 for v in values)
    return isinstance(first, UUID) and not _has_uuids()


def _has_uuids() -> bool:
    """Return whether this version of pyarrow converts UUIDs."""
    import pyarrow as pa

    try:
        pa.array([UUID(int=0)])
    except pa.ArrowInvalid:
        return False
    return True


def _first(values: Any) -> Any:
    """Return the first value that is not missing in a column of objects."""
    return next((v for v in values if v is not None), None) if values.dtype == object else None


def _is_list(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | bytes | dict)


class _Dataset:
    """A Hugging Face dataset, whose rows are already in Arrow files."""

    def __init__(self, dataset: Any) -> None:
        self.schema = dataset.features.arrow_schema
        self.lengths = [len(dataset)]
        self._dataset = dataset

    def full_schema(self) -> Any:
        return self.schema

    def read(self, piece: int, names: list[str], rows: int) -> Iterator[Any]:
        chosen = self._dataset.select_columns(names).with_format("arrow")
        for table in chosen.iter(rows):
            yield from table.to_batches()


def _library(source: Any) -> str:
    library: str = type(source).__module__.partition(".")[0]
    return library


def _wrap(source: Any) -> Any:
    """Return a frame or column of any library as that of narwhals; None for other objects."""
    import narwhals as nw

    wrapped = nw.from_native(source, pass_through=True, allow_series=True)
    return wrapped if isinstance(wrapped, nw.DataFrame | nw.LazyFrame | nw.Series) else None


def _open_table(source: Any, wanted: ColumnSpec) -> Pieces:
    import narwhals as nw
    import pyarrow as pa

    if nw.dependencies.is_pandas_series(source):
        source = source.to_frame("vectors" if source.name is None else source.name)
    if nw.dependencies.is_pandas_dataframe(source):  # narwhals refuses some names of columns that pandas allows
        return _Frame(source, wanted)
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Array | pa.ChunkedArray):
        source = pa.table({"vectors": source})
    frame = _wrap(source)
    if frame is None:
        raise ParameterError(
            f"source is a {_library(source)} {type(source).__name__}: need a data frame, a Table or a column of vectors"
        )
    if isinstance(frame, nw.Series):
        frame = frame.to_frame()
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect(None if frame.implementation.is_polars() else "pyarrow")
    if frame.implementation.is_pandas_like():
        return _Frame(frame.to_pandas(), wanted)
    for name, kind in frame.schema.items():
        if kind == nw.Object:  # Arrow would get addresses in memory
            frame = _replace_objects(frame, name)
        elif kind in (nw.Int128, nw.UInt128):  # Arrow has no integers of 128 bits
            frame = frame.with_columns(nw.col(name).cast(nw.String))
    return _Table(frame.to_arrow())


def _replace_objects(frame: Any, name: str) -> Any:
    """Return a frame with UUIDs as text in place of a column of objects, or without the column."""
    import narwhals as nw

    values = frame[name].to_list()
    if not all(v is None or isinstance(v, UUID) for v in values):
        return frame.drop(name)
    text = [None if v is None else str(v) for v in values]
    return frame.with_columns(nw.new_series(name, text, nw.String, backend=frame.implementation))


def _open_dataset(source: Any) -> _Dataset:
    import datasets

    if isinstance(source, datasets.DatasetDict):
        splits = ", ".join(source)
        raise ParameterError(
            f"source is a DatasetDict with the splits {splits}: choose one, such as "
            f'source["{next(iter(source), "train")}"]'
        )
    if not isinstance(source, datasets.Dataset):
        raise ParameterError(
            f"source is a {type(source).__name__}: need a datasets.Dataset, which has a length and is stored in Arrow"
        )
    return _Dataset(source)


_NAMES = {"pandas": "data frame", "polars": "data frame", "pyarrow": "table", "datasets": "dataset"}
"""The names of the objects of each library in messages; the objects of other libraries are data frames."""
