"""Map columns of a source to roles; `a.b` is field `b` of the objects in field `a`."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.errors import InputError, MissingColumns
from darklode.pipeline.ingest.column_hints import MAX_COLUMNS, guess_column, hint, option
from darklode.schemas.mining import LogColumns
from darklode.schemas.settings import DocumentColumns, QueryColumns

# Usual column names of each role, in order of preference. A name added to a tuple is recognized without a setting.
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
    "text": ("text", "user_query", "query"),  # in UBI's queries, `query` is the request to the engine
    "timestamp": ("timestamp",),
    "count": ("count",),
    "tenant": ("tenant",),
}
JUDGMENT_COLUMNS = {
    "query_id": ("query_id", "query-id", "qid", "topic"),
    "query": ("query", "query_text", "querytext"),
    "document": ("doc_id", "docid", "doc", "document_id", "corpus-id", "corpus_id", "chunk_id", "document"),
    "relevance": ("relevance", "rating", "score", "grade", "label", "judgment"),
    "split": ("split",),
    "tenant": ("tenant",),
}
LOG_COLUMNS = {
    "event_id": ("event_id",),
    "search_id": ("search_id",),
    "session_id": ("session_id",),
    "user_id": ("user_id", "client_id"),
    "timestamp": ("timestamp",),
    "query": ("query", "user_query", "text"),
    "doc_id": ("doc_id", "object_id", "document_id"),
    "position": ("position", "ordinal", "rank"),
    "clicked": ("clicked", "click"),
    "dwell_seconds": ("dwell_seconds",),
    "variant": ("arm", "variant"),
    "tenant": ("tenant",),
}
# Fields of the UBI 1.x schemas (User Behavior Insights) of events and queries.
UBI_EVENTS = {
    "action": ("action_name",),
    "event_id": ("event_id",),
    "search_id": ("query_id",),
    "session_id": ("session_id",),
    "user_id": ("client_id",),
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
    "user_id": ("client_id",),
    "timestamp": ("timestamp",),
    "query": ("user_query",),
    "hits": ("query_response_hit_ids",),
    "tenant": ("tenant",),
}


@dataclass(frozen=True)
class ColumnMapping:
    """The columns of roles: names from the settings, else usual names.

    Attributes:
        section: settings section of the columns, for messages.
        names: column names from the settings, by role.
        usual: usual names by role, in order of preference.
        needed: required roles.
        key: the role of the row id, if rows without one are identified by file and line.
        text: the role whose values must be text, not numbers.
        events: whether rows are events: values may be booleans or fractions, timestamps keep their type, and names
            with dots are paths into nested fields.
    """

    section: str
    names: dict[str, str]
    usual: Mapping[str, tuple[str, ...]] = field(repr=False)
    needed: tuple[str, ...] = ("text",)
    key: str | None = None
    text: str = "text"
    events: bool = False

    def find(self, where: str, present: Collection[str]) -> dict[str, str]:
        """The column of each role that the source has.

        Raises:
            MissingColumns: a required role has no column.
            InputError: a column from the settings is missing, or a column name occurs twice.
        """
        for role, name in self.names.items():
            self.check(where, role, name, present)
        columns_by_role = self._find_columns(present)
        if guesses := self.guesses(present):
            messages = [self._missing_column_message(where, role, guess, present) for role, guess in guesses.items()]
            raise MissingColumns(*messages, present=list(present), guesses=guesses)
        repeated = [name for name in columns_by_role.values() if list(present).count(name) > 1]
        if repeated:
            raise InputError(f"{where} has several columns named {repeated[0]!r}; rename all but one")
        return columns_by_role

    def fits(self, present: Collection[str]) -> bool:
        """Whether all columns from the settings and all required roles are present."""
        return set(self.names.values()) <= set(present) and set(self.needed) <= self._find_columns(present).keys()

    def guesses(self, present: Collection[str]) -> dict[str, str | None]:
        """The most likely column of each required role that has none; None: no guess. No column is guessed twice."""
        columns_by_role = self._find_columns(present)
        used_columns = set(columns_by_role.values())
        guesses: dict[str, str | None] = {}
        for role in self.needed:
            if role not in columns_by_role:
                guesses[role] = guess_column(
                    role, self.usual[role], [name for name in present if name not in used_columns]
                )
                used_columns.add(guesses[role] or "")
        return guesses

    def _missing_column_message(self, where: str, role: str, guess: str | None, present: Collection[str]) -> str:
        message = (
            f"{where} has no column for the {role} (none of {', '.join(self.usual[role])}); it has {_list(present)}"
        )
        return f"{message}; {hint(option(self.section, role, guess), guess)}"

    def optional_columns(self, columns_by_role: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Names of each role in a file whose rows may omit fields: all usual names for roles not found yet.

        The key is excluded: if the first rows have no ids, all rows are identified by file and line.
        """
        usual = {role: names for role, names in self.usual.items() if role != self.key}
        return usual | {role: (name,) for role, name in columns_by_role.items()}

    def check(self, where: str, role: str, name: str, present: Collection[str]) -> None:
        """Raise an InputError if a column from the settings is missing."""
        if name in present:
            return
        close_matches = difflib.get_close_matches(name, list(islice(present, MAX_COLUMNS)), n=1)
        guess = close_matches[0] if close_matches else guess_column(role, self.usual[role], present)
        remedy = hint(option(self.section, role, guess), guess) if guess else "set one of them, or leave it unset"
        raise InputError(f"{where} has no column {name!r} ({self.section}.{role}); it has {_list(present)}; {remedy}")

    def pick(self, values: Mapping[str, str]) -> dict[str, str]:
        """Values of front matter or HTML meta elements by role, except the text."""
        return {role: values[name] for role, name in self._find_columns(values).items() if role != "text"}

    def _find_columns(self, present: Collection[str]) -> dict[str, str]:
        """The column of each role that has one; no error if a role has none."""
        present_names = set(present)
        by_folded_name = {name.casefold(): name for name in reversed(list(present))}
        name_by_role = ((role, self._find_name(role, present_names, by_folded_name)) for role in self.usual)
        return {role: name for role, name in name_by_role if name is not None}

    def _find_name(self, role: str, present: Collection[str], by_folded_name: Mapping[str, str]) -> str | None:
        """Column of a role: the one in the settings, else the first usual name, if need be in another case."""
        if role in self.names:
            return self.names[role] if self.names[role] in present else None
        exact_match = next((name for name in self.usual[role] if name in present), None)
        return exact_match or next((by_folded_name[name] for name in self.usual[role] if name in by_folded_name), None)


def document_columns(settings: DocumentColumns) -> ColumnMapping:
    """Roles of document columns."""
    return ColumnMapping(
        "ingest.documents.columns", settings.model_dump(exclude_none=True), DOCUMENT_COLUMNS, key="doc_id"
    )


def query_columns(settings: QueryColumns) -> ColumnMapping:
    """Roles of query columns."""
    return ColumnMapping(
        "ingest.queries.columns", settings.model_dump(exclude_none=True), QUERY_COLUMNS, key="query_id"
    )


def judgment_columns() -> ColumnMapping:
    """Roles of the columns of relevance judgments; ids and queries may be numbers."""
    return ColumnMapping("judgments", {}, JUDGMENT_COLUMNS, ("document", "relevance"), text="")


def log_columns(settings: LogColumns) -> ColumnMapping:
    """Roles of search log columns."""
    required_roles = ("timestamp", "query", "doc_id", "clicked")
    return ColumnMapping(
        "logs.columns", settings.model_dump(exclude_none=True), LOG_COLUMNS, required_roles, text="query", events=True
    )


def event_columns(settings: LogColumns) -> ColumnMapping:
    """Roles of the fields of `ubi_events`. Settings apply only to the tenant and to roles without a UBI field."""
    column_names = settings.model_dump(exclude_none=True, include={"event_id", "dwell_seconds", "variant", "tenant"})
    return ColumnMapping(
        "logs.columns",
        column_names,
        _add_source(UBI_EVENTS),
        ("action", "timestamp"),
        text="query",
        events=True,
    )


def search_columns(settings: LogColumns) -> ColumnMapping:
    """Roles of the fields of `ubi_queries`."""
    column_names = settings.model_dump(exclude_none=True, include={"tenant"})
    return ColumnMapping(
        "logs.columns", column_names, _add_source(UBI_QUERIES), ("search_id",), text="query", events=True
    )


def _add_source(usual: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Add the names of the same fields under `_source`, where search engines export them."""
    return {role: (*names, *(f"_source.{name}" for name in names)) for role, names in usual.items()}


def _list(names: Collection[str]) -> str:
    return ", ".join(names) or "none"


Values = dict[str, object]
"""A parsed JSON object: values by field name."""

BOOLEAN_ROLES = {"clicked", "satisfaction", "relevance"}
MAX_FIELD_DEPTH = 4  # levels of nested objects searched for fields: the deepest field of UBI has three, plus `_source`


def names_in(rows: Sequence[Values], *, nested: bool) -> list[str]:
    """Field names of some objects; if `nested`, also of the objects in them."""
    return list(dict.fromkeys(name for row in rows for name in _names(row, MAX_FIELD_DEPTH if nested else 1)))


def _names(row: Values, depth: int) -> list[str]:
    """Field names of an object, with those of nested objects as paths, down to `depth` levels."""
    names = []
    for name, value in row.items():
        names.append(name)
        if isinstance(value, dict) and depth > 1:
            names += [f"{name}.{inner}" for inner in _names(value, depth - 1)]
    return names


def value_at(row: Values, name: str) -> object:
    """The value of a field or path; None if it is missing."""
    if name in row or "." not in name:
        return row.get(name)
    field_name, _, remaining_path = name.partition(".")
    inner = row.get(field_name)
    return value_at(inner, remaining_path) if isinstance(inner, dict) else None


def kind_of(values: Sequence[object], role: str) -> pa.DataType:
    """The Arrow type of an event field, inferred from values: numbers, booleans, lists of ids, else text."""
    first = values[0] if values else None
    if isinstance(first, list):
        items = [item for value in values if isinstance(value, list) for item in value]
        return pa.list_(kind_of(items, "")) if role == "hits" else pa.string()
    if isinstance(first, bool):
        return pa.bool_() if role in BOOLEAN_ROLES else pa.string()
    if role == "dwell_seconds" and not isinstance(first, str):
        return pa.float64()
    if not isinstance(first, int | float):
        return pa.string()
    return pa.float64() if any(isinstance(value, float) for value in values) else pa.int64()


def schema_of(kinds: dict[str, pa.DataType], flat_columns: Collection[str]) -> pa.Schema:
    """The schema of columns; names with dots become nested structs, except those in `flat_columns`."""
    tree: dict[str, Any] = {}
    for name, kind in kinds.items():
        *parents, leaf = [name] if name in flat_columns else name.split(".")
        subtree = tree
        for parent in parents:
            subtree = subtree.setdefault(parent, {})
        subtree[leaf] = kind
    return pa.schema(_fields(tree))


def _fields(tree: dict[str, Any]) -> list[pa.Field]:
    """Arrow fields of a tree: types by name, and dictionaries for structs."""
    return [pa.field(name, pa.struct(_fields(kind)) if isinstance(kind, dict) else kind) for name, kind in tree.items()]


def leaves_of(schema: pa.Schema, *, nested: bool) -> dict[str, pa.DataType]:
    """Column types by name; if `nested`, also those of struct fields."""
    leaves = {}
    for column in schema:
        leaves[column.name] = column.type
        if nested and pa.types.is_struct(column.type):
            inner = leaves_of(pa.schema(list(column.type)), nested=True)
            leaves |= {f"{column.name}.{name}": kind for name, kind in inner.items()}
    return leaves


def column_at(rows: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    """A column, or a nested field of one."""
    column_name = name if name in rows.schema.names else name.partition(".")[0]
    column = rows.column(column_name)
    combined = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    path = name[len(column_name) + 1 :].split(".") if column_name != name else []
    return pc.struct_field(combined, path) if path else combined


def join_lists(values: pa.Array) -> pa.Array:
    """Join lists of ids, one id per line, empty for null; other columns are returned unchanged."""
    if not pa.types.is_list(values.type):
        return values
    texts = values.cast(pa.list_(pa.string()))
    if not texts.flatten().null_count:
        return pc.binary_join(texts, "\n")
    lists = [None if ids is None else "\n".join(item or "" for item in ids) for ids in texts.to_pylist()]
    return pa.array(lists, pa.string())
