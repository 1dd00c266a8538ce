"""A list to search, filter and turn the pages of: what may be asked of it, and the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from darklode.pipeline.base.types import Row
from darklode.pipeline.browse.build_tables import FOLD
from darklode.pipeline.browse.catalogue import Catalogue

PAGE_ROWS = 25
MOST_PAGES = 100
"""Pages that can be turned to: who wants what comes later narrows the search."""

MOST_WORDS, WORD_CHARACTERS = 8, 100
WORDS, ORDER, PAGE = "q", "order", "page"
"""Names of parameters in an address; every filter is one more."""


SEARCHED = {
    "queries": "SELECT query FROM all_queries",
    "passages": "SELECT passage FROM all_passages",
    "rejects": "SELECT n FROM all_rejects",
}
"""SQL of what is searched, by the name of what was found."""


@dataclass(frozen=True)
class Filter:
    """One thing to filter by.

    Attributes:
        name: of the parameter in the address.
        label: what people read.
        condition: SQL that names the value by `$` and this name.
        options: SQL of the values that people may choose, in one column; "" for a share from 0 to 1.
    """

    name: str
    label: str
    condition: str
    options: str = ""


@dataclass(frozen=True)
class Listing:
    """A kind of list.

    Attributes:
        key: the page's path.
        title: what is listed.
        about: one sentence on it.
        rows: SQL behind FROM, whose columns the conditions and orders name.
        searched: where a search looks, of SEARCHED.
        matches: SQL of a row that holds a word; `queries_{word}` and the like are the rows that it looks up.
        shown: SQL of what a page shows; `chosen` is the page's rows, its `place` their order.
        orders: SQL to order by, by its name for people; the first is the usual one.
        filters: what to filter by.
    """

    key: str
    title: str
    about: str
    rows: str
    searched: tuple[str, ...]
    matches: str
    shown: str
    orders: Mapping[str, str]
    filters: tuple[Filter, ...]


@dataclass(frozen=True)
class ListRequest:
    """What an address asks of a list; what it does not know or cannot read is left out.

    Attributes:
        words: parts of words, all of which a row holds.
        chosen: value by filter.
        order: one of the listing's.
        page: from 1.
    """

    words: tuple[str, ...]
    chosen: Mapping[str, str | float]
    order: str
    page: int

    @classmethod
    def from_parameters(cls, listing: Listing, parameters: Mapping[str, str]) -> ListRequest:
        """Read an address's parameters."""
        words = tuple(word[:WORD_CHARACTERS] for word in parameters.get(WORDS, "").split()[:MOST_WORDS])
        chosen = {
            list_filter.name: _value(list_filter, parameters.get(list_filter.name, ""))
            for list_filter in listing.filters
        }
        order = parameters.get(ORDER, "")
        number = parameters.get(PAGE, "")
        page = int(number) if number.isascii() and number.isdigit() and len(number) < 6 else 1
        return cls(
            words,
            {name: value for name, value in chosen.items() if value is not None},
            order if order in listing.orders else next(iter(listing.orders)),
            min(max(page, 1), MOST_PAGES),
        )

    def parameters(self, listing: Listing, **changed: object) -> dict[str, str]:
        """The same as an address says it, without what goes without saying."""
        first = next(iter(listing.orders))
        values = {WORDS: " ".join(self.words), **{name: _to_text(value) for name, value in self.chosen.items()}}
        values |= {ORDER: "" if self.order == first else self.order, PAGE: "" if self.page == 1 else str(self.page)}
        return {name: value for name, value in (values | {k: str(v) for k, v in changed.items()}).items() if value}


def _value(list_filter: Filter, text: str) -> str | float | None:
    if list_filter.options or not text:
        return text or None
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0 <= share <= 1 else None


def _to_text(value: str | float) -> str:
    return f"{value:g}" if isinstance(value, float) else value


@dataclass(frozen=True)
class ListPage:
    """A page of a list.

    Attributes:
        request: what was asked for; `page` is at most `pages`.
        total: rows that fit.
        pages: pages that there are to turn to, at least 1.
        rows: those of the page.
    """

    request: ListRequest
    total: int
    pages: int
    rows: Sequence[Row]

    @cached_property
    def first(self) -> int:
        """Number of the page's first row among all, from 1."""
        return (self.request.page - 1) * PAGE_ROWS + 1

    @property
    def cut(self) -> bool:
        """Whether there are rows past the last page."""
        return self.total > MOST_PAGES * PAGE_ROWS


def find_rows(catalogue: Catalogue, listing: Listing, request: ListRequest, query: int | None = None) -> ListPage:
    """The page that an address asks for.

    Args:
        catalogue: the run.
        listing: which of its lists.
        request: what of it.
        query: number of a query whose rows alone are meant.
    """
    search_result = _search(catalogue, listing, request.words)
    conditions, parameters = _conditions(listing, request)
    where = f"FROM {listing.rows} WHERE {conditions}"
    if query is not None:
        where += " AND x.query = $of_query"
        parameters["of_query"] = query
    total = catalogue.table(f"SELECT count(*) AS n {where}", search_result, **parameters)["n"][0].as_py()
    pages = min(max(1, -(-total // PAGE_ROWS)), MOST_PAGES)
    request = replace(request, page=min(request.page, pages))
    begin = (request.page - 1) * PAGE_ROWS
    order = listing.orders[request.order]
    page = catalogue.table(
        f"SELECT * {where} ORDER BY {order} LIMIT {PAGE_ROWS} OFFSET {begin}", search_result, **parameters
    )
    places = pa.array(range(page.num_rows), pa.int32())
    rows = catalogue.table(listing.shown, {"chosen": page.append_column("place", places)}).to_pylist()
    return ListPage(request, total, pages, rows)


def _search(catalogue: Catalogue, listing: Listing, words: Sequence[str]) -> dict[str, pa.Table]:
    """What holds each word, looked up once: counting and showing both need it."""
    holds = f"WHERE contains(folded, {FOLD.format('$word')}) ORDER BY ALL"
    return {
        f"{name}_{number}": catalogue.table(f"{SEARCHED[name]} {holds}", word=word)
        for number, word in enumerate(words)
        for name in listing.searched
    }


def _conditions(listing: Listing, request: ListRequest) -> tuple[str, dict[str, Any]]:
    """SQL of what a row has to fulfil, and the values that it names."""
    conditions, parameters = ["true"], dict[str, Any]()
    conditions += [listing.matches.format(word=number) for number in range(len(request.words))]
    for list_filter in listing.filters:
        if list_filter.name in request.chosen:
            parameters[list_filter.name] = request.chosen[list_filter.name]
            conditions.append(list_filter.condition)
    return " AND ".join(f"({list_filter})" for list_filter in conditions), parameters


def choices(catalogue: Catalogue, listing: Listing) -> Iterator[tuple[Filter, list[Any] | None]]:
    """The filters with the values to choose from, where there is more than one; None for a share."""
    for list_filter in listing.filters:
        values = catalogue.column(list_filter.options) if list_filter.options else None
        if values is None or len(values) > 1:
            yield list_filter, values
