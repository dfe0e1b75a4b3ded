"""Table layouts, which describe columns with their Arrow types so that a table can be rewritten without loss."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import ParameterError
from isoscope.stores.columns import INVERSE_RANK

if TYPE_CHECKING:
    from isoscope.stores.store import Batch, Store

VECTOR_COLUMN = "embedding"
"""The default name of the vector column in a table."""

_METADATA_KEY = b"isoscope"  # the key of the JSON object that isoscope writes into the metadata of a schema


@dataclass(frozen=True)
class Layout:
    """The columns of a table, including the vectors, with their Arrow types and their order."""

    schema: Any
    vectors: str
    """The name of the vector column."""

    @property
    def others(self) -> list[Any]:
        """The fields of all columns except the vectors."""
        return [field for field in self.schema if field.name != self.vectors]

    def without(self, names: frozenset[str]) -> Layout:
        """Return the layout without these columns."""
        return self._with_fields([field for field in self.schema if field.name not in names])

    def with_columns(self, given: Mapping[str, np.ndarray]) -> Layout:
        """Return the layout with columns for these values; they replace columns with the same names."""
        import pyarrow as pa

        if self.vectors in given:
            raise ParameterError(
                f"the vector column {self.vectors} has the same name as a column that was passed: rename one of them"
            )
        added = {name: pa.field(name, arrow_type(values)) for name, values in given.items()}
        fields = [added.pop(field.name, field) for field in self.schema]
        return self._with_fields([*fields, *added.values()])

    def with_vectors(self, dtype: np.dtype, dim: int) -> Layout:
        """Return the layout with vectors of this dtype and dimension."""
        import pyarrow as pa

        field = pa.field(self.vectors, pa.list_(pa.from_numpy_dtype(dtype), dim))
        schema = self.schema.set(self.schema.get_field_index(self.vectors), field)
        return Layout(schema.with_metadata(_with_feature(schema.metadata, self.vectors, dtype, dim)), self.vectors)

    def conform(self, record: Any, given: Mapping[str, np.ndarray], rows: int) -> Any:
        """Return the other columns of some rows as a record batch with exactly this layout."""
        import pyarrow as pa

        columns = []
        for field in self.others:
            if field.name in given:
                columns.append(pa.array(given[field.name], field.type))
            elif field.name not in record.schema.names:
                columns.append(pa.nulls(rows, field.type))
            else:
                column = record.column(field.name)
                columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(self.others))

    def _with_fields(self, fields: Sequence[Any]) -> Layout:
        import pyarrow as pa

        return Layout(pa.schema(fields, metadata=self.schema.metadata), self.vectors)


def read_metadata(schema: Any) -> dict[str, Any]:
    """Return the JSON object that isoscope wrote into the metadata of an Arrow schema, or an empty one."""
    try:
        content = json.loads((schema.metadata or {})[_METADATA_KEY])
    except (LookupError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def with_metadata(schema: Any, content: Mapping[str, Any]) -> Any:
    """Return an Arrow schema with a JSON object in its metadata, which `read_metadata` returns."""
    return schema.with_metadata({**(schema.metadata or {}), _METADATA_KEY: json.dumps(content).encode()})


def read_roles(schema: Any) -> dict[str, str | None]:
    """Return the column of each role that the metadata of an Arrow schema declares; None means no column."""
    roles = read_metadata(schema).get("roles")
    if not isinstance(roles, dict):
        return {}
    return {role: name for role, name in roles.items() if name is None or isinstance(name, str)}


def output_names(store: Store) -> dict[str, str]:
    """Return the name under which the column of each role is written."""
    return {role: role if name in (VECTOR_COLUMN, INVERSE_RANK) else name for role, name in store.columns.items()}


def wide_layout(schema: Any, dimensions: Sequence[str]) -> Layout:
    """Return the output layout for a table with one column per dimension: the vectors become one column of lists."""
    import pyarrow as pa

    names = set(schema.names) - set(dimensions)
    vectors = next(
        name
        for name in (VECTOR_COLUMN, "vectors", *(f"{VECTOR_COLUMN}_{i}" for i in range(len(names))))
        if name not in names
    )
    lists = pa.field(vectors, pa.list_(pa.float64()))
    taken = set(dimensions[1:])
    fields = [lists if field.name == dimensions[0] else field for field in schema if field.name not in taken]
    return Layout(pa.schema(fields), vectors)  # without the metadata of pandas, which describes the old columns


def unify_layouts(layouts: Sequence[Layout], where: Sequence[Any]) -> Layout:
    """Return one layout for the rows of several tables; a column is null in rows from tables that lack it."""
    import pyarrow as pa

    first = layouts[0]
    if all(each.schema.equals(first.schema) for each in layouts):
        return first
    unified = pa.schema(first.others)
    for each, path in zip(layouts[1:], where[1:], strict=True):
        try:
            more = pa.unify_schemas([unified, pa.schema(each.others)], promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            why = " ".join(str(error).split())[:200]
            raise ParameterError(
                f"{path} has different columns from {where[0]}: {why}; use the same columns, or write only the "
                "vectors with columns=False (on the command line: --vectors-only)"
            ) from error
        partial = set(unified.names) ^ set(each.schema.names)
        unified = pa.schema([field.with_nullable(field.nullable or field.name in partial) for field in more])
    fields = {field.name: field for field in unified}
    own = [fields.pop(field.name, field) for field in first.schema]
    return Layout(pa.schema([*own, *fields.values()], metadata=first.schema.metadata), first.vectors)


def role_layout(first: Batch) -> Layout:
    """Return the layout of a table with the vectors and columns of a batch, for a source that is not a table."""
    import pyarrow as pa

    fields = [pa.field(VECTOR_COLUMN, pa.list_(pa.float64()))]
    fields += [pa.field(name, arrow_type(values)) for name, values in first.columns.items()]
    return Layout(pa.schema(fields), VECTOR_COLUMN)


def arrow_type(values: np.ndarray) -> Any:
    """Return the Arrow type for writing the values of a role."""
    import pyarrow as pa

    return pa.string() if values.dtype.kind in "OU" else pa.from_numpy_dtype(values.dtype)


def _with_feature(
    metadata: dict[bytes, bytes] | None, name: str, dtype: np.dtype, dim: int
) -> dict[bytes, bytes] | None:
    """Return the `datasets` metadata with the new vector type; otherwise `datasets` would cast the vectors back."""
    key = b"huggingface"
    if not metadata or key not in metadata:
        return metadata
    try:
        about = json.loads(metadata[key])
        feature = about["info"]["features"][name]
        feature["feature"] = {"dtype": dtype.name, "_type": "Value"}
        feature["length"] = dim
    except (ValueError, LookupError, TypeError):
        return {name: value for name, value in metadata.items() if name != key}
    return {**metadata, key: json.dumps(about).encode()}
