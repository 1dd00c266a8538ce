"""The pages on which a run is searched and looked at: its lists, a query, a document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from darklode.flows.web.guard import BODY_BYTES
from darklode.flows.web.pages import Pages, Site, passage
from darklode.pipeline.base.errors import ArtifactError, InputError
from darklode.pipeline.base.highlighting import Highlighter
from darklode.pipeline.base.terms import Analyzer
from darklode.pipeline.base.types import Row
from darklode.pipeline.browse.catalogue import Catalogue
from darklode.pipeline.browse.filtering import PAGE, Listing, ListPage, ListRequest, choices, find_rows
from darklode.pipeline.browse.lists import CANDIDATES, OWN_TRIPLETS, TRIPLET, lists_of
from darklode.pipeline.browse.overview import table_counts
from darklode.pipeline.browse.query_detail import evidence, judged_pool, passage_of, query_of
from darklode.pipeline.browse.related_queries import SimilarQueries

NEAR = 8
VALUE_CHARACTERS = 2000
"""Of a parameter: ids may be long, and nothing else is."""

_PAGES = Pages("Browse", ("page.css", "texts.css", "browse/browse.css"), ("keys.js", "browse/browse.js"))
_NO_MARKS = Highlighter.of_parts(())

Given = Mapping[str, str]


class Browser:
    """What is shown of a run, as pages; several threads may ask for them.

    Args:
        catalogue: the run.
        analyzer: of its BM25, for marks and near queries.
    """

    def __init__(self, catalogue: Catalogue, analyzer: Analyzer) -> None:
        self._catalogue = catalogue
        self._analyzer = analyzer
        self._lists = lists_of(catalogue)
        self._similar_queries = SimilarQueries(catalogue, analyzer)
        self._choices = {key: list(choices(catalogue, listing)) for key, listing in self._lists.items()}
        self._tallies = table_counts(catalogue)

    @property
    def pages(self) -> dict[str, Callable[[Given], str]]:
        """What makes each page, by its path below the token."""
        own = {"": self._overview, "query": self._query, "triplet": self._triplet, "document": self._document}
        return own | {key: self._list_page(key) for key in self._lists}

    def _overview(self, _parameters: Given) -> str:
        """What the run holds."""
        return self._render("overview", here="", tallies=self._tallies)

    def _list_page(self, key: str) -> Callable[[Given], str]:
        """The pages of one of the lists."""
        listing = self._lists[key]

        def page(parameters: Given) -> str:
            list_page = find_rows(self._catalogue, listing, ListRequest.from_parameters(listing, parameters))
            shown = self._list(listing, list_page, list_page.request.parameters(listing))
            return self._render("list", here=key, choices=self._choices[key], **shown)

        return page

    def _query(self, parameters: Given) -> str:
        """All about a query.

        Raises:
            InputError: the run has no such query.
        """
        query = query_of(self._catalogue, parameters.get("tenant", ""), parameters.get("id", ""))
        listing = OWN_TRIPLETS if self._catalogue.mined else CANDIDATES
        list_page = find_rows(
            self._catalogue, listing, ListRequest.from_parameters(listing, parameters), query["query"]
        )
        key = {"tenant": query["tenant"], "id": query["query_id"]}
        shown = self._list(listing, list_page, key | list_page.request.parameters(listing))
        more = evidence(self._catalogue, query) if self._catalogue.mined else self._judged_context(query)
        page = "searched" if self._catalogue.mined else "judged"
        picks = self._choices["pairs"] if listing is CANDIDATES else []
        picks = [pick for pick in picks if pick[0] in listing.filters]
        return self._render(page, here="queries", query=query, own=key, choices=picks, **shown, **more)

    def _triplet(self, parameters: Given) -> str:
        """A triplet with all its negatives."""
        list_page = find_rows(self._catalogue, TRIPLET, ListRequest.from_parameters(TRIPLET, parameters))
        if list_page.total != 1:
            raise InputError("The run has no such triplet.")
        return self._render("triplet", here="triplets", row=self._highlight_row(list_page.rows[0], ()))

    def _document(self, parameters: Given) -> str:
        """A document, with the queries that it answers.

        Raises:
            InputError: the run has no such document.
        """
        tenant, doc_id = parameters.get("tenant", ""), parameters.get("id", "")
        reading, answers = passage_of(self._catalogue, tenant, doc_id, parameters.get("chunk"))
        parts = _NO_MARKS.cut((reading.before, reading.chunk, reading.after))
        return self._render("document", here="", tenant=tenant, answers=answers, reading=reading, parts=parts)

    def _judged_context(self, query: Row) -> dict[str, Any]:
        """A benchmark query's near ones, and what was said of its candidates."""
        similar_queries = self._similar_queries.similar(query["query"], NEAR)
        return {"near": similar_queries, **judged_pool(self._catalogue, query)}

    def _list(self, listing: Listing, list_page: ListPage, address: Given) -> dict[str, Any]:
        """A page of a list, its marks, and the addresses of the pages around it."""
        request = list_page.request
        rows = [self._highlight_row(row, request.words) for row in list_page.rows]
        before = {**address, PAGE: str(request.page - 1)} if request.page > 1 else None
        after = {**address, PAGE: str(request.page + 1)} if request.page < list_page.pages else None
        words = " ".join(request.words)
        return {"listing": listing, "found": list_page, "rows": rows, "words": words, "before": before, "after": after}

    def _highlight_row(self, row: Row, words: Sequence[str]) -> dict[str, Any]:
        """A row with its texts marked: by what was searched for, or by the terms of its query."""
        query = row.get("query_text") or ""
        marker = Highlighter.of_parts(words) if words else Highlighter.of_terms(self._analyzer, query)
        row_marker = marker if words else _NO_MARKS
        pieces = {name: row_marker.pieces(row[name]) for name in ("query_text", "text", "payload") if row.get(name)}
        passages = [row, *(row.get("negatives") or [])] if "passage_id" in row else []
        return {**row, "pieces": pieces, "passages": [passage(passage_row, marker) for passage_row in passages]}

    def _render(self, page: str, **values: Any) -> str:
        shared = {"run": self._catalogue.name, "mined": self._catalogue.mined, "lists": self._lists.values()}
        return _PAGES.render(f"browse/{page}.html", **shared, **values)


_SAID = {
    400: ("That cannot be asked", "The address cannot be understood."),
    404: ("There is no such page", "Open the address that `darklode browse` printed, with everything in it."),
    405: ("That cannot be asked", "These pages only show; nothing can be sent to them."),
    413: ("That is too much", f"A request may take {BODY_BYTES:,} bytes."),
    500: ("Something went wrong", "The terminal in which `darklode browse` runs says what."),
}
_SITE = Site(_PAGES, _SAID, lambda _request: "./", "To the run")


def browse_app(browser: Browser, token: str, hosts: Sequence[str]) -> ASGIApp:
    """The pages of a run; the rest is as for `Site.app`."""
    routes = [Route(f"/{path}", _endpoint(page)) for path, page in browser.pages.items()]
    return _SITE.app(routes, {InputError: _not_found, ArtifactError: _not_found_page}, token, hosts)


def _endpoint(page: Callable[[Given], str]) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        parameters = {name: value[:VALUE_CHARACTERS] for name, value in request.query_params.items()}
        if "" in parameters.values():  # as forms send what was left empty
            query_string = urlencode({name: value for name, value in parameters.items() if value})
            return RedirectResponse(
                f"{request.url.path.rpartition('/')[2] or './'}{'?' * bool(query_string)}{query_string}", 303
            )
        return HTMLResponse(await run_in_threadpool(page, parameters))

    return endpoint


async def _not_found(request: Request, error: Exception) -> Response:
    return _SITE.error_page(request, 410, str(error))


async def _not_found_page(request: Request, error: Exception) -> Response:
    return _SITE.error_page(request, 410, str(error))
