"""Which of a source's columns plays which part; `a.b` names the field `b` of the objects in the field `a`."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.errors import InputError, MissingColumns
from darklode.pipeline.ingest.column_hints import MOST_COLUMNS, hint, likeliest_column, option
from darklode.schemas.mining import LogColumns
from darklode.schemas.settings import DocumentColumns, QueryColumns

DOCUMENT_COLUMNS = {
    "doc_id": ("doc_id", "_id", "id", "docid"),
    "title": ("title",),
    "topic": ("topic",),
    "text": ("text", "body", "content", "contents"),
    "url": ("url",),
    "tenant": ("tenant",),
}
QUERY_COLUMNS = {
    "query_id": ("query_id", "_id", "id", "qid"),
    "text": ("text", "query", "user_query"),
    "timestamp": ("timestamp",),
    "count": ("count",),
    "tenant": ("tenant",),
}
LOG_COLUMNS = {
    "event_id": ("event_id",),
    "search_id": ("search_id",),
    "session_id": ("session_id",),
    "timestamp": ("timestamp",),
    "query": ("query", "user_query", "text"),
    "doc_id": ("doc_id", "object_id", "document_id"),
    "position": ("position", "ordinal", "rank"),
    "clicked": ("clicked", "click"),
    "dwell_seconds": ("dwell_seconds",),
    "variant": ("arm", "variant"),
    "tenant": ("tenant",),
}
UBI_EVENTS = {
    "action": ("action_name",),
    "event_id": ("event_id",),
    "search_id": ("query_id",),
    "session_id": ("session_id",),
    "client_id": ("client_id",),
    "timestamp": ("timestamp",),
    "query": ("user_query",),
    "doc_id": ("event_attributes.object.object_id",),
    "position": ("event_attributes.position.ordinal",),
    "dwell_seconds": ("dwell_seconds",),
    "variant": ("event_attributes.arm", "event_attributes.variant"),
    "tenant": ("tenant",),
}
UBI_QUERIES = {
    "search_id": ("query_id",),
    "session_id": ("session_id",),
    "client_id": ("client_id",),
    "timestamp": ("timestamp",),
    "query": ("user_query",),
    "hits": ("query_response_hit_ids",),
    "tenant": ("tenant",),
}


@dataclass(frozen=True)
class ColumnMapping:
    """The parts (roles) that columns play: the names that the settings give, and those that are looked for else.

    Attributes:
        section: the settings that name columns, for messages.
        names: the names that the settings give, by role.
        usual: the names that are looked for else, the first present first.
        needed: roles without which a source cannot be read.
        key: the role that names a row, where rows without one are named by their place.
        text: the role that is always text: numbers in it are an error.
        events: whether rows are events: values may be true, false or a fraction, times stay times, and a name with dots
            is a path into nested fields.
    """

    section: str
    names: dict[str, str]
    usual: Mapping[str, tuple[str, ...]] = field(repr=False)
    needed: tuple[str, ...] = ("text",)
    key: str | None = None
    text: str = "text"
    events: bool = False

    def find(self, where: str, present: Collection[str]) -> dict[str, str]:
        """The column for each role that the source has, of those that are present.

        Raises:
            MissingColumns: there is none for a role that is needed.
            InputError: a column that the settings name is not there, or two have the name of one.
        """
        for role, name in self.names.items():
            self.check(where, role, name, present)
        columns_by_role = self._roles(present)
        if guesses := self.guesses(present):
            lacking = [self._missing_column_message(where, role, guess, present) for role, guess in guesses.items()]
            raise MissingColumns(*lacking, present=list(present), guesses=guesses)
        twice = [name for name in columns_by_role.values() if list(present).count(name) > 1]
        if twice:
            raise InputError(f"{where} has several columns named {twice[0]!r}; rename all but one")
        return columns_by_role

    def fits(self, present: Collection[str]) -> bool:
        """Whether all that the settings name and all that is needed is there."""
        return set(self.names.values()) <= set(present) and set(self.needed) <= self._roles(present).keys()

    def guesses(self, present: Collection[str]) -> dict[str, str | None]:
        """The likeliest column of each role that is needed and has none, each column once; None: there is none."""
        columns_by_role = self._roles(present)
        taken, guesses = set(columns_by_role.values()), dict[str, str | None]()
        for role in self.needed:
            if role not in columns_by_role:
                guesses[role] = likeliest_column(
                    role, self.usual[role], [name for name in present if name not in taken]
                )
                taken.add(guesses[role] or "")
        return guesses

    def _missing_column_message(self, where: str, role: str, guess: str | None, present: Collection[str]) -> str:
        message = (
            f"{where} has no column for the {role} (none of {', '.join(self.usual[role])}); it has {_list(present)}"
        )
        return f"{message}; {hint(option(self.section, role, guess), guess)}"

    def optional_columns(self, columns_by_role: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """The names of each role in a file whose rows may omit what others have: of those not found yet, all usual.

        The key is none of these: a file whose first rows have no ids has rows that are named by their place.
        """
        usual = {role: names for role, names in self.usual.items() if role != self.key}
        return usual | {role: (name,) for role, name in columns_by_role.items()}

    def check(self, where: str, role: str, name: str, present: Collection[str]) -> None:
        """Raise an InputError where a column that the settings name is not present."""
        if name in present:
            return
        close_matches = difflib.get_close_matches(name, list(islice(present, MOST_COLUMNS)), n=1)
        guess = close_matches[0] if close_matches else likeliest_column(role, self.usual[role], present)
        remedy = hint(option(self.section, role, guess), guess) if guess else "name one of them or none"
        raise InputError(f"{where} has no column {name!r} ({self.section}.{role}); it has {_list(present)}; {remedy}")

    def pick(self, values: Mapping[str, str]) -> dict[str, str]:
        """The values of front matter or of HTML meta elements by role, for those that are there; never the text."""
        return {role: values[name] for role, name in self._roles(values).items() if role != "text"}

    def _roles(self, present: Collection[str]) -> dict[str, str]:
        present_names, folded = set(present), {name.casefold(): name for name in reversed(list(present))}
        firsts = ((role, self._first(role, present_names, folded)) for role in self.usual)
        return {role: name for role, name in firsts if name is not None}

    def _first(self, role: str, present: Collection[str], folded: Mapping[str, str]) -> str | None:
        if role in self.names:
            return self.names[role] if self.names[role] in present else None
        exact = next((name for name in self.usual[role] if name in present), None)
        return exact or next((folded[name] for name in self.usual[role] if name in folded), None)


def document_columns(settings: DocumentColumns) -> ColumnMapping:
    """The roles of a document's columns."""
    return ColumnMapping(
        "ingest.documents.columns", settings.model_dump(exclude_none=True), DOCUMENT_COLUMNS, key="doc_id"
    )


def query_columns(settings: QueryColumns) -> ColumnMapping:
    """The roles of a query's columns."""
    return ColumnMapping(
        "ingest.queries.columns", settings.model_dump(exclude_none=True), QUERY_COLUMNS, key="query_id"
    )


def log_columns(settings: LogColumns) -> ColumnMapping:
    """The roles of a search log's columns."""
    needed = ("timestamp", "query", "doc_id", "clicked")
    return ColumnMapping(
        "logs.columns", settings.model_dump(exclude_none=True), LOG_COLUMNS, needed, text="query", events=True
    )


def event_columns(settings: LogColumns) -> ColumnMapping:
    """The roles of the fields of `ubi_events`; of the settings only the tenant and what UBI has no field for count."""
    column_names = settings.model_dump(exclude_none=True, include={"event_id", "dwell_seconds", "variant", "tenant"})
    return ColumnMapping(
        "logs.columns", column_names, _of_hits(UBI_EVENTS), ("action", "timestamp"), text="query", events=True
    )


def search_columns(settings: LogColumns) -> ColumnMapping:
    """The roles of the fields of `ubi_queries`."""
    column_names = settings.model_dump(exclude_none=True, include={"tenant"})
    return ColumnMapping("logs.columns", column_names, _of_hits(UBI_QUERIES), ("search_id",), text="query", events=True)


def _of_hits(usual: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The names of fields, and those of the same fields in a hit as search engines export it."""
    return {role: (*names, *(f"_source.{name}" for name in names)) for role, names in usual.items()}


def _list(names: Collection[str]) -> str:
    return ", ".join(names) or "none"


Values = dict[str, object]
TRUTHS = {"clicked", "satisfaction", "relevance"}
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
    head, _, tail = name.partition(".")
    inner = row.get(head)
    return at_path(inner, tail) if isinstance(inner, dict) else None


def kind_of(values: Sequence[object], role: str) -> pa.DataType:
    """The type of a field of events by some of its values: numbers, truth values, lists of ids, else text."""
    first = values[0] if values else None
    if isinstance(first, list):
        inside = [value for some in values if isinstance(some, list) for value in some]
        return pa.list_(kind_of(inside, "")) if role == "hits" else pa.string()
    if isinstance(first, bool):
        return pa.bool_() if role in TRUTHS else pa.string()
    if role == "dwell_seconds" and not isinstance(first, str):
        return pa.float64()
    if not isinstance(first, int | float):
        return pa.string()
    return pa.float64() if any(isinstance(value, float) for value in values) else pa.int64()


def schema_of(kinds: dict[str, pa.DataType], integer_columns: Collection[str]) -> pa.Schema:
    """The schema of these columns; names with dots lie within structs, unless listed in `integer_columns`."""
    tree: dict[str, Any] = {}
    for name, kind in kinds.items():
        *heads, last = [name] if name in integer_columns else name.split(".")
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
    combined = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    path = name[len(head) + 1 :].split(".") if head != name else []
    return pc.struct_field(combined, path) if path else combined


def join_lists(values: pa.Array) -> pa.Array:
    """Lists of ids as texts, one id a line and an empty line for a missing one; any other column as it is."""
    if not pa.types.is_list(values.type):
        return values
    texts = values.cast(pa.list_(pa.string()))
    if not texts.flatten().null_count:
        return pc.binary_join(texts, "\n")
    lists = [None if some is None else "\n".join(item or "" for item in some) for some in texts.to_pylist()]
    return pa.array(lists, pa.string())
