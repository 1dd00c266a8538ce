"""Term weights from the user's own file, one term per row."""

import hashlib
from collections import defaultdict
from pathlib import Path
from typing import Literal, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from pydantic import Field, model_validator

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.errors import InputError
from darklode.pipeline.base.query_normalization import normal_form
from darklode.pipeline.mine.term_weighting.kinds import TermWeighterKind
from darklode.pipeline.mine.term_weighting.port import TermWeighter, Tokenizer, weigh_terms
from darklode.schemas.paths import FilePath
from darklode.schemas.settings import CacheSettings

_REQUIRED = ("term", "importance")
_OPTIONAL = ("tenant", "query")
Terms = dict[tuple[str, ...], float]


class TableTermWeighterKind(TermWeighterKind):
    """Term weights from a CSV or Parquet file."""

    kind: Literal["table"] = "table"
    table: FilePath[str | None] = Field(
        None, description="CSV or Parquet file with the columns term, importance and, optionally, tenant, query."
    )

    @model_validator(mode="after")
    def _requires_table(self) -> Self:
        if not self.table:
            raise ValueError("kind table needs term_weighting.table, a CSV or Parquet file")
        return self

    def term_weighter(self, _learned: Tables, _cache_settings: CacheSettings) -> "TableTermWeighter":
        return TableTermWeighter(str(self.table))

    def missing(self) -> list[str]:
        """The error, if the file cannot be used."""
        try:
            TableTermWeighter(str(self.table))
        except InputError as error:
            return [str(error)]
        return []


class TableTermWeighter(TermWeighter):
    """Importances from a CSV or Parquet file with the columns term, importance (0 to 1) and, as options, tenant, query.

    Terms are compared by stems, and the longest match wins. Words that the file does not contain get no importance.
    Rows with a query apply to that query only and replace all other rows for it; rows with a tenant override rows
    without one.

    Args:
        file: path; held in memory, about 200 bytes per row.

    Raises:
        InputError: the file cannot be read, a column is missing, or a row is invalid; the message names the row.
    """

    def __init__(self, file: str) -> None:
        path = Path(file).expanduser()
        self.version = f"table planner 1 {_hash(path)}"
        self._tokenizer = Tokenizer(every_word=True)
        self._terms: dict[str, Terms] = defaultdict(dict)
        self._queries: dict[tuple[str, str], Terms] = defaultdict(dict)
        rows = _rows(path)
        rows = rows.set_column(rows.column_names.index("query"), "query", normal_form(rows["query"]))
        for number, row in enumerate(rows.to_pylist(), 1):
            self._add(row, f"{path}, row {number}")
        shared = self._terms[""]
        self._weights_by_tenant = {tenant: shared | own for tenant, own in self._terms.items()}
        self._longest = max((len(words) for terms in self._terms.values() for words in terms), default=0)

    def terms(self, queries: pa.Table) -> pa.Table:
        """Rows of `query_terms` for rows of tenant, query_id and text."""
        return weigh_terms(queries, self.weights)

    def weights(self, tenant: str, text: str) -> dict[str, float]:
        """Importance by term, for a query's normal form."""
        own = self._queries.get((tenant, text)) or self._queries.get(("", text))
        return {" ".join(words): importance for words, importance in (own or self._look_up(tenant, text)).items()}

    def _look_up(self, tenant: str, text: str) -> Terms:
        """The terms of a text with their importances; the longest match wins, from left to right."""
        tenant_weights = self._weights_by_tenant.get(tenant, self._weights_by_tenant[""])
        words = tuple(self._tokenizer.tokenize(text))
        terms_found: Terms = {}
        start = 0
        while start < len(words):
            sizes = range(min(self._longest, len(words) - start), 0, -1)
            size = next((size for size in sizes if words[start : start + size] in tenant_weights), 0)
            if size:
                term = words[start : start + size]
                terms_found[term] = tenant_weights[term]
            start += size or 1
        return terms_found

    def _add(self, row: dict[str, str | None], where: str) -> None:
        words = tuple(self._tokenizer.tokenize(row["term"] or ""))
        if not words:
            raise InputError(f"{where}: term {row['term'] or ''!r} contains no word; correct or delete the row")
        importance = _parse_importance(row["importance"], where)
        tenant, query = row["tenant"] or "", row["query"] or ""
        weights = self._queries[tenant, query] if query else self._terms[tenant]
        if weights.setdefault(words, importance) != importance:
            raise InputError(
                f"{where}: term {row['term']!r} already has importance {weights[words]}; keep one of the rows"
            )


def _parse_importance(text: str | None, where: str) -> float:
    try:
        importance = float(text or "")
    except ValueError:
        importance = -1.0
    if not 0 <= importance <= 1:
        raise InputError(f"{where}: importance {text or ''!r} is not a number from 0 to 1; correct the row")
    return importance


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); set term_weighting.table to a CSV or Parquet file"
        ) from None


def _rows(path: Path) -> pa.Table:
    """The file's rows, all columns as text; a missing optional column is null."""
    try:
        rows = pq.read_table(path) if path.suffix.lower() == ".parquet" else _csv(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read: {error}; save it as CSV (UTF-8, with a header) or Parquet") from None
    if missing := [name for name in _REQUIRED if name not in rows.column_names]:
        raise InputError(f"{path} has no column {', '.join(missing)}; it has {', '.join(rows.column_names)}")
    columns = {name: _text(rows, name) for name in (*_REQUIRED, *_OPTIONAL)}
    return pa.table(columns)


def _csv(path: Path) -> pa.Table:
    names = dict.fromkeys((*_REQUIRED, *_OPTIONAL), pa.string())
    parse = pa_csv.ParseOptions(delimiter="\t" if path.suffix.lower() == ".tsv" else ",", newlines_in_values=True)
    return pa_csv.read_csv(path, parse_options=parse, convert_options=pa_csv.ConvertOptions(column_types=names))


def _text(rows: pa.Table, name: str) -> pa.ChunkedArray | pa.Array:
    return pc.cast(rows[name], pa.string()) if name in rows.column_names else pa.nulls(rows.num_rows, pa.string())


KIND = TableTermWeighterKind
