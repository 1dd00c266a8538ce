"""Search, filters, order and pagination of a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from darklode.pipeline.base.types import Row
from darklode.pipeline.browse.build_tables import FOLDED_TEXT_SQL
from darklode.pipeline.browse.catalogue import Catalogue

PAGE_ROWS = 25
MAX_PAGES = 100
"""Maximum number of pages; to see later rows, users narrow the search."""

MAX_WORDS, WORD_CHARACTERS = 8, 100
"""Maximum number of search words, and of characters per word; each word scans all texts."""

WORDS_PARAMETER, ORDER_PARAMETER, PAGE_PARAMETER = "q", "order", "page"
"""Names of URL parameters; each filter adds one."""

SEARCHABLE = {
    "queries": "SELECT query FROM all_queries",
    "passages": "SELECT passage FROM all_passages",
    "rejects": "SELECT n FROM all_rejects",
}
"""SQL of the searchable tables; its one column is the row's number."""


@dataclass(frozen=True)
class Filter:
    """A filter of a list.

    Attributes:
        name: URL parameter.
        label: text beside the control.
        condition: SQL with the value as `$name`.
        options: SQL of the selectable values, in one column; "" for a number from 0 to 1.
    """

    name: str
    label: str
    condition: str
    options: str = ""


@dataclass(frozen=True)
class Listing:
    """Definition of a list.

    Attributes:
        key: path of its page.
        title: heading.
        about: one-sentence description.
        rows: SQL after FROM; conditions and orders use its columns.
        searched: keys of SEARCHABLE.
        matches: SQL condition that a row contains a word, using the search results `queries_{word}` etc.
        display_sql: SQL of the displayed columns; `page_rows` are the rows of the page, `page_rows.place` their order.
        orders: ORDER BY clauses by label; the first is the default.
    """

    key: str
    title: str
    about: str
    rows: str
    searched: tuple[str, ...]
    matches: str
    display_sql: str
    orders: Mapping[str, str]
    filters: tuple[Filter, ...]


@dataclass(frozen=True)
class ListRequest:
    """Search words, filter values, order and page of a list, read from a URL; invalid values are ignored.

    Attributes:
        words: substrings that a row must contain, all of them.
        chosen: values by filter name.
        order: a key of the listing's `orders`.
        page: page number, from 1.
    """

    words: tuple[str, ...]
    chosen: Mapping[str, str | float]
    order: str
    page: int

    @classmethod
    def from_parameters(cls, listing: Listing, parameters: Mapping[str, str]) -> ListRequest:
        """Parse URL parameters; invalid values become defaults."""
        words = tuple(word[:WORD_CHARACTERS] for word in parameters.get(WORDS_PARAMETER, "").split()[:MAX_WORDS])
        chosen = {
            list_filter.name: _value(list_filter, parameters.get(list_filter.name, ""))
            for list_filter in listing.filters
        }
        order = parameters.get(ORDER_PARAMETER, "")
        number = parameters.get(PAGE_PARAMETER, "")
        page = int(number) if number.isascii() and number.isdigit() and len(number) < 6 else 1
        return cls(
            words,
            {name: value for name, value in chosen.items() if value is not None},
            order if order in listing.orders else next(iter(listing.orders)),
            min(max(page, 1), MAX_PAGES),
        )

    def parameters(self, listing: Listing, **changed: object) -> dict[str, str]:
        """URL parameters of this request, without default values."""
        default_order = next(iter(listing.orders))
        values = {
            WORDS_PARAMETER: " ".join(self.words),
            **{name: _to_text(value) for name, value in self.chosen.items()},
        }
        values |= {
            ORDER_PARAMETER: "" if self.order == default_order else self.order,
            PAGE_PARAMETER: "" if self.page == 1 else str(self.page),
        }
        return {
            name: value
            for name, value in (values | {name: str(value) for name, value in changed.items()}).items()
            if value
        }


def _value(list_filter: Filter, text: str) -> str | float | None:
    """Value of a filter in a URL; None if it is missing, or not a number from 0 to 1 for a numeric filter."""
    if list_filter.options or not text:
        return text or None
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0 <= share <= 1 else None


def _to_text(value: str | float) -> str:
    """A filter's value as it is written in a URL."""
    return f"{value:g}" if isinstance(value, float) else value


@dataclass(frozen=True)
class ListPage:
    """A page of a list.

    Attributes:
        request: the request, with `page` at most `pages`.
        total: number of matching rows.
        pages: number of pages, at least 1 and at most MAX_PAGES.
        rows: rows of this page.
    """

    request: ListRequest
    total: int
    pages: int
    rows: Sequence[Row]

    @cached_property
    def first(self) -> int:
        """Position of the page's first row among all matches, from 1."""
        return (self.request.page - 1) * PAGE_ROWS + 1

    @property
    def cut(self) -> bool:
        """Whether MAX_PAGES cuts off rows."""
        return self.total > MAX_PAGES * PAGE_ROWS


def find_rows(catalogue: Catalogue, listing: Listing, request: ListRequest, query: int | None = None) -> ListPage:
    """Find a page of a list; `query` restricts it to the rows of the query with this number."""
    search_result = _search(catalogue, listing, request.words)
    conditions, parameters = _conditions(listing, request)
    where = f"FROM {listing.rows} WHERE {conditions}"
    if query is not None:
        where += " AND x.query = $of_query"
        parameters["of_query"] = query
    total = catalogue.table(f"SELECT count(*) AS n {where}", search_result, **parameters)["n"][0].as_py()
    pages = min(max(1, -(-total // PAGE_ROWS)), MAX_PAGES)
    request = replace(request, page=min(request.page, pages))
    offset = (request.page - 1) * PAGE_ROWS
    order = listing.orders[request.order]
    page = catalogue.table(
        f"SELECT * {where} ORDER BY {order} LIMIT {PAGE_ROWS} OFFSET {offset}", search_result, **parameters
    )
    row_order = pa.array(range(page.num_rows), pa.int32())
    rows = catalogue.table(listing.display_sql, {"page_rows": page.append_column("place", row_order)}).to_pylist()
    return ListPage(request, total, pages, rows)


def _search(catalogue: Catalogue, listing: Listing, words: Sequence[str]) -> dict[str, pa.Table]:
    """Rows that contain each word, looked up once for both counting and display."""
    condition = f"WHERE contains(folded, {FOLDED_TEXT_SQL.format('$word')}) ORDER BY ALL"
    return {
        f"{name}_{number}": catalogue.table(f"{SEARCHABLE[name]} {condition}", word=word)
        for number, word in enumerate(words)
        for name in listing.searched
    }


def _conditions(listing: Listing, request: ListRequest) -> tuple[str, dict[str, Any]]:
    """WHERE condition of a request, and its parameters."""
    conditions, parameters = ["true"], dict[str, Any]()
    conditions += [listing.matches.format(word=number) for number in range(len(request.words))]
    for list_filter in listing.filters:
        if list_filter.name in request.chosen:
            parameters[list_filter.name] = request.chosen[list_filter.name]
            conditions.append(list_filter.condition)
    return " AND ".join(f"({condition})" for condition in conditions), parameters


def choices(catalogue: Catalogue, listing: Listing) -> Iterator[tuple[Filter, list[Any] | None]]:
    """Filters with their selectable values, if there are several; None for a numeric filter."""
    for list_filter in listing.filters:
        values = catalogue.column(list_filter.options) if list_filter.options else None
        if values is None or len(values) > 1:
            yield list_filter, values
