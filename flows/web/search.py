"""HTTP service and search page of `darklode serve`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from darklode.flows.web.guard import MAX_BODY_BYTES
from darklode.flows.web.pages import Pages, Site, passage
from darklode.pipeline.base.errors import InputError
from darklode.pipeline.base.highlighting import Highlighter
from darklode.pipeline.base.terms import Analyzer
from darklode.pipeline.base.types import Row
from darklode.pipeline.serve.batching import QueueFull, RequestBatcher
from darklode.pipeline.serve.service import SearchRequest, SearchService, TenantServices

DEFAULT_DEPTH, MAX_DEPTH = 10, 100
MAX_QUERY_CHARACTERS = 2000
"""Maximum length of a query."""

MAX_BATCH_QUERIES, MAX_WAITING_QUERIES = 64, 512
"""Maximum number of queries encoded together, and of queries waiting."""

SEARCH_PATH, HEALTH_PATH = "/search", "/health"


_STYLES = ("page.css", "texts.css", "browse/browse.css", "search/search.css")
_PAGES = Pages("Search", _STYLES, ("keys.js", "search/search.js"))


class SearchBody(BaseModel):
    """JSON body of a search request."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query: str = Field(min_length=1, max_length=MAX_QUERY_CHARACTERS)
    system: str | None = None
    tenant: str | None = None
    depth: int = Field(DEFAULT_DEPTH, ge=1, le=MAX_DEPTH)


@dataclass(frozen=True)
class SearchConsole:
    """Endpoints of the service.

    Attributes:
        folder: the index or run served.
        about: description of what is searched.
        service: the systems.
        batches: queue that encodes queries in batches.
        analyzer: analyzer of the highlighted terms.
    """

    folder: str
    about: str
    service: SearchService | TenantServices
    batches: RequestBatcher[SearchRequest, list[Row]]
    analyzer: Analyzer

    async def search(self, request: Request) -> Response:
        """Ranked texts of one system as JSON."""
        search_request = self._read(await request.body())
        (hits,) = await self._answers([search_request])
        return JSONResponse({"query": search_request.text, "system": search_request.system, "hits": hits})

    async def page(self, request: Request) -> Response:
        """Results of all systems side by side."""
        query = request.query_params.get("q", "").strip()
        if not query or len(query) > MAX_QUERY_CHARACTERS:
            error = f"A query may have at most {MAX_QUERY_CHARACTERS:,} characters." if query else ""
            status = HTTPStatus.BAD_REQUEST if error else HTTPStatus.OK
            return HTMLResponse(self._render(query[:MAX_QUERY_CHARACTERS], [], error=error), status)
        tenant = self._tenant(request.query_params.get("tenant"))
        names = self.service.systems(tenant)
        results = await self._answers([SearchRequest(name, query, DEFAULT_DEPTH, tenant) for name in names])
        columns = self._system_columns(query, dict(zip(names, results, strict=True)))
        return HTMLResponse(self._render(query, columns, tenant=tenant))

    async def health(self, _request: Request) -> Response:
        """Health check with the length of the queue."""
        return JSONResponse({"status": "ok", "waiting": self.batches.n_waiting})

    def _read(self, body: bytes) -> SearchRequest:
        """Parse a request body.

        Raises:
            InputError: invalid body.
        """
        try:
            request_body = SearchBody.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(f"{where}: {first['msg']}" if where else first["msg"]) from error
        if not request_body.query.strip():
            raise InputError("query: must not be empty")
        tenant = self._tenant(request_body.tenant)
        names = self.service.systems(tenant)
        if request_body.system is not None and request_body.system not in names:
            problem = f"unknown system {request_body.system!r}"
            if request_body.system in self.service.systems():
                problem = f"{request_body.system!r} is not for tenant {tenant}"
            raise InputError(f"system: {problem}; available: {', '.join(names)}")
        return SearchRequest(request_body.system or names[0], request_body.query, request_body.depth, tenant)

    def _tenant(self, name: str | None) -> str:
        """The tenant to search; the only one without a name.

        Raises:
            InputError: there is no such tenant, or several and none is named.
        """
        tenants = self.service.tenants
        if name is None and len(tenants) == 1:
            return tenants[0]
        if name not in tenants:
            problem = "required" if name is None else f"unknown tenant {name!r}"
            raise InputError(f"tenant: {problem}; available: {', '.join(tenants)}")
        return name

    async def _answers(self, requests: Sequence[SearchRequest]) -> list[list[Row]]:
        return await asyncio.gather(*map(asyncio.wrap_future, self.batches.ask(requests)))

    def _system_columns(self, query: str, results: Mapping[str, Sequence[Row]]) -> list[dict[str, Any]]:
        """Each system's texts with highlighted query terms and their rank in the other system."""
        highlighter, columns = Highlighter.of_terms(self.analyzer, query), []
        for name, rows in results.items():
            other_ranks = [
                {row["text_id"]: row["rank"] for row in system_rows}
                for other, system_rows in results.items()
                if other != name
            ]
            shown = [
                {**row, **passage(row | {"text": row["text"] or "", "fenced": False}, highlighter)}
                | {"other": _other_ranks_text(row, other_ranks)}
                for row in rows
            ]
            columns.append({"name": name, "rows": shown})
        return columns

    def _render(self, query: str, columns: Sequence[Mapping[str, Any]], error: str = "", tenant: str = "") -> str:
        ids = [{row["text_id"] for row in column["rows"]} for column in columns]
        systems = self.service.systems(tenant or None)
        context = {
            "folder": self.folder,
            "about": self.about,
            "systems": " and ".join(systems),
            "both": len(systems) > 1,
        }
        shared = len(set.intersection(*ids)) if ids else 0
        context |= {
            "query": query,
            "error": error,
            "characters": MAX_QUERY_CHARACTERS,
            "depth": DEFAULT_DEPTH,
            "shared": shared,
            "tenants": self.service.tenants,
            "tenant": tenant,
        }
        return _PAGES.render("search/search.html", **context, columns=columns)


def _other_ranks_text(row: Row, other_ranks: Sequence[Mapping[str, int]]) -> str:
    if not other_ranks:
        return ""
    rank = other_ranks[0].get(row["text_id"])
    return "only here" if rank is None else "same rank" if rank == row["rank"] else f"rank {rank} in the other"


_MESSAGES = {
    400: ("Bad request", "The address is invalid."),
    404: ("Page not found", "Open the complete address that `darklode serve` printed."),
    405: ("Method not allowed", "Use POST for `search` and GET for the page."),
    413: ("Request too large", f"The limit is {MAX_BODY_BYTES:,} bytes."),
    500: ("Internal error", "See the terminal in which `darklode serve` runs."),
    503: ("Queue full", "Too many queries are waiting; retry in a second."),
}


class _SearchSite(Site):
    """Reports errors of the API as JSON."""

    def error_page(self, request: Request, status: int, detail: str = "") -> Response:
        if request.url.path not in {SEARCH_PATH, HEALTH_PATH}:
            return super().error_page(request, status, detail)
        heading, sentence = self.messages.get(status, self.messages[HTTPStatus.BAD_REQUEST])
        return JSONResponse({"error": detail or f"{heading}. {sentence}"}, status)


_SITE = _SearchSite(_PAGES, _MESSAGES, lambda _request: "./", "Back to the search")


def search_app(console: SearchConsole, token: str, hosts: Sequence[str]) -> ASGIApp:
    """Create the app; `/health` needs no token. See `Site.app` for `token` and `hosts`."""
    routes = [
        Route("/", console.page),
        Route(SEARCH_PATH, console.search, methods=["POST"]),
        Route(HEALTH_PATH, console.health),
    ]
    return _SITE.app(routes, {InputError: _reject_request, QueueFull: _reject_busy}, token, hosts, free=(HEALTH_PATH,))


async def _reject_request(request: Request, error: Exception) -> Response:
    return _SITE.error_page(request, HTTPStatus.BAD_REQUEST, str(error))


async def _reject_busy(request: Request, error: Exception) -> Response:
    response = _SITE.error_page(request, HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    response.headers["Retry-After"] = "1"
    return response
