"""What stands beside the vectors in a table, so that the table can be written again with nothing lost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import InputError
from isoscope.stores.columns import INVERSE_RANK

if TYPE_CHECKING:
    from isoscope.stores.store import Batch, Store

VECTOR_COLUMN = "embedding"
"""What the vectors are called where they have no name of their own."""


@dataclass(frozen=True)
class Layout:
    """The columns of a table, as Arrow knows them, with the vectors in their place."""

    schema: Any
    vectors: str
    """The name of the vectors' column."""

    @property
    def others(self) -> list[Any]:
        """The fields that are not the vectors."""
        return [field for field in self.schema if field.name != self.vectors]

    def without(self, names: frozenset[str]) -> Layout:
        """The table without some columns."""
        return self._with_fields([field for field in self.schema if field.name not in names])

    def plus(self, given: Mapping[str, np.ndarray]) -> Layout:
        """The table with columns of given values; they take the place of those of the same names."""
        import pyarrow as pa

        if self.vectors in given:
            raise InputError(f"the vectors' column is named {self.vectors}, as are values beside it: rename the column")
        added = {name: pa.field(name, arrow_type(values)) for name, values in given.items()}
        fields = [added.pop(field.name, field) for field in self.schema]
        return self._with_fields([*fields, *added.values()])

    def with_vectors(self, dtype: np.dtype, dim: int) -> Layout:
        """The table with vectors of this kind."""
        import pyarrow as pa

        field = pa.field(self.vectors, pa.list_(pa.from_numpy_dtype(dtype), dim))
        schema = self.schema.set(self.schema.get_field_index(self.vectors), field)
        return Layout(schema.with_metadata(_with_feature(schema.metadata, self.vectors, dtype, dim)), self.vectors)

    def fitted(self, record: Any, given: Mapping[str, np.ndarray], rows: int) -> Any:
        """The other columns of some rows as a record batch of exactly this layout."""
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


def output_names(store: Store) -> dict[str, str]:
    """Return the name that the column of each role gets where a store is written."""
    return {role: role if name in (VECTOR_COLUMN, INVERSE_RANK) else name for role, name in store.columns.items()}


def wide_layout(schema: Any, dimensions: Sequence[str]) -> Layout:
    """A table with a column for each dimension, as it is written: one column of lists in the place of the first."""
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
    return Layout(pa.schema(fields), vectors)  # what pandas notes of the old columns no longer holds


def unify_layouts(layouts: Sequence[Layout], where: Sequence[Any]) -> Layout:
    """The layout that holds the rows of several tables; a column that one lacks is null there."""
    import pyarrow as pa

    first = layouts[0]
    if all(each.schema.equals(first.schema) for each in layouts):
        return first
    found = pa.schema(first.others)
    for each, path in zip(layouts[1:], where[1:], strict=True):
        try:
            more = pa.unify_schemas([found, pa.schema(each.others)], promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            why = " ".join(str(error).split())[:200]
            raise InputError(
                f"{path} has other columns than {where[0]}: {why}; need the same, or leave them: columns=False, "
                "on the command line --vectors-only"
            ) from error
        lacking = set(found.names) ^ set(each.schema.names)
        found = pa.schema([field.with_nullable(field.nullable or field.name in lacking) for field in more])
    fields = {field.name: field for field in found}
    own = [fields.pop(field.name, field) for field in first.schema]
    return Layout(pa.schema([*own, *fields.values()], metadata=first.schema.metadata), first.vectors)


def role_layout(first: Batch) -> Layout:
    """Return the layout of a table with the vectors and columns of a batch, for a source that is not a table."""
    import pyarrow as pa

    fields = [pa.field(VECTOR_COLUMN, pa.list_(pa.float64()))]
    fields += [pa.field(name, arrow_type(values)) for name, values in first.columns.items()]
    return Layout(pa.schema(fields), VECTOR_COLUMN)


def arrow_type(values: np.ndarray) -> Any:
    """The kind that values of a role are written in."""
    import pyarrow as pa

    return pa.string() if values.dtype.kind in "OU" else pa.from_numpy_dtype(values.dtype)


def _with_feature(
    metadata: dict[bytes, bytes] | None, name: str, dtype: np.dtype, dim: int
) -> dict[bytes, bytes] | None:
    """What `datasets` notes of its columns, with the vectors as they are now: it would cast them back otherwise."""
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
