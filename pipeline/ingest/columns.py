"""Which of a source's columns plays which part."""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pipeline.errors import InputError
from schemas.settings import DocumentColumns, QueryColumns

DOCUMENTS = {
    "doc_id": ("doc_id", "_id", "id", "docid"),
    "title": ("title",),
    "text": ("text", "body", "content", "contents"),
    "url": ("url",),
    "tenant": ("tenant",),
}
QUERIES = {
    "query_id": ("query_id", "_id", "id", "qid"),
    "text": ("text", "query", "user_query"),
    "timestamp": ("timestamp",),
    "count": ("count",),
    "tenant": ("tenant",),
}


@dataclass(frozen=True)
class Columns:
    """The parts (roles) that columns play: the names that the settings give, and those that are looked for else."""

    section: str
    named: dict[str, str]
    usual: Mapping[str, tuple[str, ...]] = field(repr=False)

    def find(self, where: str, present: Collection[str]) -> dict[str, str]:
        """The column for each role that the source has, of those that are present.

        Raises:
            InputError: a column that the settings name is not there, or there is none for the text.
        """
        for role, name in self.named.items():
            self.check(where, role, name, present)
        found = self._roles(present)
        if "text" not in found:
            wanted = ", ".join(self.usual["text"])
            raise InputError(
                f"{where} has no column for the text (none of {wanted}); it has {_list(present)}; "
                f"name it in {self.section}.text"
            )
        return found

    def check(self, where: str, role: str, name: str, present: Collection[str]) -> None:
        """Raise an InputError where a column that the settings name is not present."""
        if name in present:
            return
        near = difflib.get_close_matches(name, list(present), n=1)
        hint = f"did you mean {near[0]!r}?" if near else "name one of them or none"
        raise InputError(f"{where} has no column {name!r} ({self.section}.{role}); it has {_list(present)}; {hint}")

    def pick(self, values: Mapping[str, str]) -> dict[str, str]:
        """The values of front matter or of HTML meta elements by role, for those that are there; never the text."""
        return {role: values[name] for role, name in self._roles(values).items() if role != "text"}

    def _roles(self, present: Collection[str]) -> dict[str, str]:
        firsts = ((role, self._first(role, present)) for role in self.usual)
        return {role: name for role, name in firsts if name is not None}

    def _first(self, role: str, present: Collection[str]) -> str | None:
        names = (self.named[role],) if role in self.named else self.usual[role]
        return next((name for name in names if name in present), None)


def document_columns(settings: DocumentColumns) -> Columns:
    """The roles of a document's columns."""
    return Columns("ingest.documents.columns", settings.model_dump(exclude_none=True), DOCUMENTS)


def query_columns(settings: QueryColumns) -> Columns:
    """The roles of a query's columns."""
    return Columns("ingest.queries.columns", settings.model_dump(exclude_none=True), QUERIES)


def _list(names: Collection[str]) -> str:
    return ", ".join(names) or "none"
