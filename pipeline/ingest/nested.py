"""Fields within fields: `a.b` names the field `b` of the objects in the field `a`."""

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Values = dict[str, object]
DEPTH = 4


def names_in(rows: Sequence[Values], *, nested: bool) -> list[str]:
    """The names of the fields of some objects, with those of the objects in them where `nested`."""
    return list(dict.fromkeys(name for row in rows for name in _names(row, DEPTH if nested else 1)))


def _names(row: Values, depth: int) -> list[str]:
    names = []
    for name, value in row.items():
        names.append(name)
        if isinstance(value, dict) and depth > 1:
            names += [f"{name}.{inner}" for inner in _names(value, depth - 1)]
    return names


def at_path(row: Values, name: str) -> object:
    """The value of a field, None where there is none."""
    if name in row or "." not in name:
        return row.get(name)
    head, _, rest = name.partition(".")
    inner = row.get(head)
    return at_path(inner, rest) if isinstance(inner, dict) else None


def kind_of(given: Sequence[object], role: str) -> pa.DataType:
    """The type of a field of events by some of its values: numbers, truth values, lists of ids, else text."""
    first = given[0] if given else None
    if isinstance(first, list):
        inside = [value for some in given if isinstance(some, list) for value in some]
        return pa.list_(kind_of(inside, "")) if role == "hits" else pa.string()
    if isinstance(first, bool):
        return pa.bool_() if role == "clicked" else pa.string()
    if role == "dwell_seconds" and not isinstance(first, str):
        return pa.float64()
    if not isinstance(first, int | float):
        return pa.string()
    return pa.float64() if any(isinstance(value, float) for value in given) else pa.int64()


def schema_of(kinds: dict[str, pa.DataType], whole: Collection[str]) -> pa.Schema:
    """The schema in which each name has its type; those with dots lie within structs, unless they are `whole` names."""
    tree: dict[str, Any] = {}
    for name, kind in kinds.items():
        *heads, last = [name] if name in whole else name.split(".")
        inner = tree
        for head in heads:
            inner = inner.setdefault(head, {})
        inner[last] = kind
    return pa.schema(_fields(tree))


def _fields(tree: dict[str, Any]) -> list[pa.Field]:
    return [pa.field(name, pa.struct(_fields(kind)) if isinstance(kind, dict) else kind) for name, kind in tree.items()]


def leaves_of(schema: pa.Schema, *, nested: bool) -> dict[str, pa.DataType]:
    """The types of a schema's columns by name, those of fields within structs too where `nested`."""
    leaves = {}
    for column in schema:
        leaves[column.name] = column.type
        if nested and pa.types.is_struct(column.type):
            inner = leaves_of(pa.schema(list(column.type)), nested=True)
            leaves |= {f"{column.name}.{name}": kind for name, kind in inner.items()}
    return leaves


def column_at(rows: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    """A column, or a field within one."""
    head = name if name in rows.schema.names else name.partition(".")[0]
    column = rows.column(head)
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    path = name[len(head) + 1 :].split(".") if head != name else []
    return pc.struct_field(whole, path) if path else whole


def joined_lists(values: pa.Array) -> pa.Array:
    """Lists of ids as texts, one id a line and an empty line for a missing one; any other column as it is."""
    if not pa.types.is_list(values.type):
        return values
    texts = values.cast(pa.list_(pa.string()))
    if not texts.flatten().null_count:
        return pc.binary_join(texts, "\n")
    lists = [None if some is None else "\n".join(one or "" for one in some) for some in texts.to_pylist()]
    return pa.array(lists, pa.string())
