"""The service of `darklode serve`: ranked texts as JSON, and a page on which two systems stand side by side."""

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

from darklode.flows.web.guard import BODY_BYTES
from darklode.flows.web.pages import Pages, Site, passage
from darklode.pipeline.base.errors import InputError
from darklode.pipeline.base.highlighting import Highlighter
from darklode.pipeline.base.terms import Analyzer
from darklode.pipeline.base.types import Row
from darklode.pipeline.serve.batching import QueueFull, RequestBatcher
from darklode.pipeline.serve.service import SearchRequest, SearchService

DEPTH, DEEPEST = 10, 100
CHARACTERS = 2000
"""Of a query."""

BATCH, WAITING = 64, 512
"""Questions that are encoded together, and that may wait."""

SEARCH, HEALTH = "/search", "/health"


_STYLES = ("page.css", "texts.css", "browse/browse.css", "search/search.css")
_PAGES = Pages("Search", _STYLES, ("keys.js", "search/search.js"))


class SearchBody(BaseModel):
    """The body of a question."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query: str = Field(min_length=1, max_length=CHARACTERS)
    system: str | None = None
    depth: int = Field(DEPTH, ge=1, le=DEEPEST)


@dataclass(frozen=True)
class SearchConsole:
    """What the pages show and the questions go to.

    Attributes:
        folder: what is served.
        about: what is searched, in words.
        service: the systems.
        batches: answers.
        analyzer: of the terms that are marked.
    """

    folder: str
    about: str
    service: SearchService
    batches: RequestBatcher[SearchRequest, list[Row]]
    analyzer: Analyzer

    async def search(self, request: Request) -> Response:
        """Ranked texts for a query, by one system."""
        request_body = self._read(await request.body())
        (results,) = await self._answers([request_body])
        return JSONResponse({"query": request_body.text, "system": request_body.system, "found": results})

    async def page(self, request: Request) -> Response:
        """What all systems find, side by side."""
        query = request.query_params.get("q", "").strip()
        if not query or len(query) > CHARACTERS:
            wrong = f"A query has {CHARACTERS:,} characters at most." if query else ""
            status = HTTPStatus.BAD_REQUEST if wrong else HTTPStatus.OK
            return HTMLResponse(self._render(query[:CHARACTERS], [], wrong=wrong), status)
        names = list(self.service.systems)
        results = await self._answers([SearchRequest(name, query, DEPTH) for name in names])
        return HTMLResponse(self._render(query, self._system_columns(query, dict(zip(names, results, strict=True)))))

    async def health(self, _request: Request) -> Response:
        """That it answers, and how many questions wait."""
        return JSONResponse({"status": "ok", "waiting": self.batches.n_waiting})

    def _read(self, body: bytes) -> SearchRequest:
        """The question in a body.

        Raises:
            InputError: it is none.
        """
        try:
            request_body = SearchBody.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(f"{where}: {first['msg']}" if where else first["msg"]) from error
        if not request_body.query.strip():
            raise InputError("query: there is nothing to search for")
        names = list(self.service.systems)
        if request_body.system is not None and request_body.system not in names:
            raise InputError(f"system: there is no {request_body.system!r}; there are {', '.join(names)}")
        return SearchRequest(request_body.system or names[0], request_body.query, request_body.depth)

    async def _answers(self, questions: Sequence[SearchRequest]) -> list[list[Row]]:
        return await asyncio.gather(*map(asyncio.wrap_future, self.batches.ask(questions)))

    def _system_columns(self, query: str, results: Mapping[str, Sequence[Row]]) -> list[dict[str, Any]]:
        """Each system's texts with the query's terms marked, and where the other system has them."""
        marker, sides = Highlighter.of_terms(self.analyzer, query), []
        for name, rows in results.items():
            other_ranks = [
                {row["text_id"]: row["rank"] for row in system_rows}
                for other, system_rows in results.items()
                if other != name
            ]
            shown = [
                {**row, **passage(row | {"text": row["text"] or "", "fenced": False}, marker)}
                | {"other": _other_ranks_text(row, other_ranks)}
                for row in rows
            ]
            sides.append({"name": name, "rows": shown})
        return sides

    def _render(self, query: str, sides: Sequence[Mapping[str, Any]], wrong: str = "") -> str:
        ids = [{row["text_id"] for row in side["rows"]} for side in sides]
        names = " and ".join(self.service.systems)
        context = {"folder": self.folder, "about": self.about, "systems": names, "both": len(self.service.systems) > 1}
        shared = len(set.intersection(*ids)) if ids else 0
        context |= {"query": query, "wrong": wrong, "characters": CHARACTERS, "depth": DEPTH, "shared": shared}
        return _PAGES.render("search/search.html", **context, sides=sides)


def _other_ranks_text(row: Row, other_ranks: Sequence[Mapping[str, int]]) -> str:
    if not other_ranks:
        return ""
    rank = other_ranks[0].get(row["text_id"])
    return "only here" if rank is None else "same place" if rank == row["rank"] else f"{rank} at the other"


_SAID = {
    400: ("That cannot be asked", "The address cannot be understood."),
    404: ("There is no such page", "Open the address that `darklode serve` printed, with everything in it."),
    405: ("That cannot be asked", "Questions are sent to `search` by POST, the page is asked for by GET."),
    413: ("That is too much", f"A question may take {BODY_BYTES:,} bytes."),
    500: ("Something went wrong", "The terminal in which `darklode serve` runs says what."),
    503: ("Too many questions", "More wait than may; ask again in a second."),
}


class _SearchSite(Site):
    """Says what failed as JSON where JSON was asked for."""

    def error_page(self, request: Request, status: int, detail: str = "") -> Response:
        if request.url.path not in {SEARCH, HEALTH}:
            return super().error_page(request, status, detail)
        heading, sentence = self.messages.get(status, self.messages[HTTPStatus.BAD_REQUEST])
        return JSONResponse({"error": detail or f"{heading}. {sentence}"}, status)


_SITE = _SearchSite(_PAGES, _SAID, lambda _request: "./", "To the search")


def search_app(console: SearchConsole, token: str, hosts: Sequence[str]) -> ASGIApp:
    """The service; `/health` is answered without the token, the rest is as for `Site.app`."""
    routes = [
        Route("/", console.page),
        Route(SEARCH, console.search, methods=["POST"]),
        Route(HEALTH, console.health),
    ]
    return _SITE.app(routes, {InputError: _bad_request, QueueFull: _queue_full}, token, hosts, free=(HEALTH,))


async def _bad_request(request: Request, error: Exception) -> Response:
    return _SITE.error_page(request, HTTPStatus.BAD_REQUEST, str(error))


async def _queue_full(request: Request, error: Exception) -> Response:
    response = _SITE.error_page(request, HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    response.headers["Retry-After"] = "1"
    return response
