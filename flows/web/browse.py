"""Web pages of `darklode browse`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from darklode.flows.web.guard import MAX_BODY_BYTES
from darklode.flows.web.pages import Pages, Site, passage
from darklode.pipeline.base.errors import ArtifactError, InputError
from darklode.pipeline.base.highlighting import Highlighter
from darklode.pipeline.base.terms import Analyzer
from darklode.pipeline.base.types import Row
from darklode.pipeline.browse.catalogue import Catalogue
from darklode.pipeline.browse.filtering import PAGE_PARAMETER, Listing, ListPage, ListRequest, choices, find_rows
from darklode.pipeline.browse.lists import CANDIDATES, OWN_TRIPLETS, TRIPLET, lists_of
from darklode.pipeline.browse.overview import table_counts
from darklode.pipeline.browse.query_detail import document_of, evidence, judged_pool, query_of
from darklode.pipeline.browse.related_queries import SimilarQueries

MAX_SIMILAR_QUERIES = 8
PARAMETER_CHARACTERS = 2000
"""Maximum length of a URL parameter; only ids are long."""

_PAGES = Pages("Browse", ("page.css", "texts.css", "browse/browse.css"), ("keys.js", "browse/browse.js"))
_NO_HIGHLIGHTS = Highlighter.of_parts(())

Parameters = Mapping[str, str]


class Browser:
    """Renders the pages of a run; thread-safe.

    Args:
        catalogue: the run.
        analyzer: the run's BM25 analyzer, for highlights and similar queries.
    """

    def __init__(self, catalogue: Catalogue, analyzer: Analyzer) -> None:
        self._catalogue = catalogue
        self._analyzer = analyzer
        self._lists = lists_of(catalogue)
        self._similar_queries = SimilarQueries(catalogue, analyzer)
        self._choices = {key: list(choices(catalogue, listing)) for key, listing in self._lists.items()}
        self._counts = table_counts(catalogue)

    @property
    def pages(self) -> dict[str, Callable[[Parameters], str]]:
        """Functions that render the pages, by path below the token."""
        pages = {"": self._overview, "query": self._query, "triplet": self._triplet, "document": self._document}
        return pages | {key: self._list_page(key) for key in self._lists}

    def _overview(self, _parameters: Parameters) -> str:
        return self._render("overview", here="", counts=self._counts)

    def _list_page(self, key: str) -> Callable[[Parameters], str]:
        listing = self._lists[key]

        def page(parameters: Parameters) -> str:
            list_page = find_rows(self._catalogue, listing, ListRequest.from_parameters(listing, parameters))
            shown = self._list(listing, list_page, list_page.request.parameters(listing))
            return self._render("list", here=key, choices=self._choices[key], **shown)

        return page

    def _query(self, parameters: Parameters) -> str:
        """Page of one query.

        Raises:
            InputError: unknown query.
        """
        query = query_of(self._catalogue, parameters.get("tenant", ""), parameters.get("id", ""))
        listing = OWN_TRIPLETS if self._catalogue.mined else CANDIDATES
        list_page = find_rows(
            self._catalogue, listing, ListRequest.from_parameters(listing, parameters), query["query"]
        )
        key = {"tenant": query["tenant"], "id": query["query_id"]}
        shown = self._list(listing, list_page, key | list_page.request.parameters(listing))
        details = evidence(self._catalogue, query) if self._catalogue.mined else self._judged_context(query)
        page = "mined_query" if self._catalogue.mined else "judged_query"
        filters = self._choices["pairs"] if listing is CANDIDATES else []
        filters = [choice for choice in filters if choice[0] in listing.filters]
        return self._render(page, here="queries", query=query, own=key, choices=filters, **shown, **details)

    def _triplet(self, parameters: Parameters) -> str:
        """Page of a triplet with all its negatives."""
        list_page = find_rows(self._catalogue, TRIPLET, ListRequest.from_parameters(TRIPLET, parameters))
        if list_page.total != 1:
            raise InputError("The run has no such triplet.")
        return self._render("triplet", here="triplets", row=self._highlight_row(list_page.rows[0], ()))

    def _document(self, parameters: Parameters) -> str:
        """Page of a document with the queries it answers.

        Raises:
            InputError: unknown document.
        """
        tenant, doc_id = parameters.get("tenant", ""), parameters.get("id", "")
        reading, answers = document_of(self._catalogue, tenant, doc_id, parameters.get("chunk"))
        parts = _NO_HIGHLIGHTS.cut((reading.before, reading.chunk, reading.after))
        return self._render("document", here="", tenant=tenant, answers=answers, reading=reading, parts=parts)

    def _judged_context(self, query: Row) -> dict[str, Any]:
        """Similar queries, and ranks, answers and verdicts of the candidates."""
        similar_queries = self._similar_queries.similar(query["query"], MAX_SIMILAR_QUERIES)
        return {"similar": similar_queries, **judged_pool(self._catalogue, query)}

    def _list(self, listing: Listing, list_page: ListPage, address: Parameters) -> dict[str, Any]:
        """Template values of a list page: highlighted rows and parameters of the previous and next page."""
        request = list_page.request
        rows = [self._highlight_row(row, request.words) for row in list_page.rows]
        before = {**address, PAGE_PARAMETER: str(request.page - 1)} if request.page > 1 else None
        after = {**address, PAGE_PARAMETER: str(request.page + 1)} if request.page < list_page.pages else None
        words = " ".join(request.words)
        return {"listing": listing, "page": list_page, "rows": rows, "words": words, "before": before, "after": after}

    def _highlight_row(self, row: Row, words: Sequence[str]) -> dict[str, Any]:
        """Highlight a row's texts by the search words, or by the terms of its query if there are none."""
        query = row.get("query_text") or ""
        highlighter = Highlighter.of_parts(words) if words else Highlighter.of_terms(self._analyzer, query)
        row_highlighter = highlighter if words else _NO_HIGHLIGHTS
        names = [name for name in ("query_text", "text", "payload") if row.get(name)]
        pieces = {name: row_highlighter.pieces(row[name]) for name in names}
        passages = [row, *(row.get("negatives") or [])] if "passage_id" in row else []
        return {**row, "pieces": pieces, "passages": [passage(passage_row, highlighter) for passage_row in passages]}

    def _render(self, template: str, **values: Any) -> str:
        shared = {"run": self._catalogue.name, "mined": self._catalogue.mined, "lists": self._lists.values()}
        return _PAGES.render(f"browse/{template}.html", **shared, **values)


_MESSAGES = {
    400: ("Bad request", "The address is invalid."),
    404: ("Page not found", "Open the complete address that `darklode browse` printed."),
    405: ("Method not allowed", "These pages are read-only."),
    413: ("Request too large", f"The limit is {MAX_BODY_BYTES:,} bytes."),
    500: ("Internal error", "See the terminal in which `darklode browse` runs."),
}
_SITE = Site(_PAGES, _MESSAGES, lambda _request: "./", "Back to the run")


def browse_app(browser: Browser, token: str, hosts: Sequence[str]) -> ASGIApp:
    """Create the app; see `Site.app` for `token` and `hosts`."""
    routes = [Route(f"/{path}", _endpoint(page)) for path, page in browser.pages.items()]
    return _SITE.app(routes, {InputError: _show_gone, ArtifactError: _show_gone}, token, hosts)


def _endpoint(page: Callable[[Parameters], str]) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        parameters = {name: value[:PARAMETER_CHARACTERS] for name, value in request.query_params.items()}
        if "" in parameters.values():  # forms send empty fields; redirect to an address without them
            query_string = urlencode({name: value for name, value in parameters.items() if value})
            return RedirectResponse(
                f"{request.url.path.rpartition('/')[2] or './'}{'?' * bool(query_string)}{query_string}", 303
            )
        return HTMLResponse(await run_in_threadpool(page, parameters))

    return endpoint


async def _show_gone(request: Request, error: Exception) -> Response:
    return _SITE.error_page(request, 410, str(error))
