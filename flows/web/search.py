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
from darklode.pipeline.base.marking import Marker
from darklode.pipeline.base.terms import Analyzer
from darklode.pipeline.serve.batching import Batches, Busy
from darklode.pipeline.serve.service import Question, Service

DEPTH, DEEPEST = 10, 100
CHARACTERS = 2000
"""Of a query."""

BATCH, WAITING = 64, 512
"""Questions that are encoded together, and that may wait."""

SEARCH, HEALTH = "/search", "/health"

Row = dict[str, Any]

_STYLES = ("page.css", "texts.css", "browse/browse.css", "search/search.css")
_PAGES = Pages("Search", _STYLES, ("keys.js", "search/search.js"))


class Asked(BaseModel):
    """The body of a question."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query: str = Field(min_length=1, max_length=CHARACTERS)
    system: str | None = None
    depth: int = Field(DEPTH, ge=1, le=DEEPEST)


@dataclass(frozen=True)
class Console:
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
    service: Service
    batches: Batches[Question, list[Row]]
    analyzer: Analyzer

    async def search(self, request: Request) -> Response:
        """Ranked texts for a query, by one system."""
        asked = self._read(await request.body())
        (found,) = await self._answers([asked])
        return JSONResponse({"query": asked.text, "system": asked.system, "found": found})

    async def page(self, request: Request) -> Response:
        """What all systems find, side by side."""
        query = request.query_params.get("q", "").strip()
        if not query or len(query) > CHARACTERS:
            wrong = f"A query has {CHARACTERS:,} characters at most." if query else ""
            status = HTTPStatus.BAD_REQUEST if wrong else HTTPStatus.OK
            return HTMLResponse(self._render(query[:CHARACTERS], [], wrong=wrong), status)
        names = list(self.service.systems)
        found = await self._answers([Question(name, query, DEPTH) for name in names])
        return HTMLResponse(self._render(query, self._sides(query, dict(zip(names, found, strict=True)))))

    async def health(self, _request: Request) -> Response:
        """That it answers, and how many questions wait."""
        return JSONResponse({"status": "ok", "waiting": self.batches.waiting})

    def _read(self, body: bytes) -> Question:
        """The question in a body.

        Raises:
            InputError: it is none.
        """
        try:
            asked = Asked.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(f"{where}: {first['msg']}" if where else first["msg"]) from error
        if not asked.query.strip():
            raise InputError("query: there is nothing to search for")
        names = list(self.service.systems)
        if asked.system is not None and asked.system not in names:
            raise InputError(f"system: there is no {asked.system!r}; there are {', '.join(names)}")
        return Question(asked.system or names[0], asked.query, asked.depth)

    async def _answers(self, questions: Sequence[Question]) -> list[list[Row]]:
        return await asyncio.gather(*map(asyncio.wrap_future, self.batches.ask(questions)))

    def _sides(self, query: str, found: Mapping[str, Sequence[Row]]) -> list[dict[str, Any]]:
        """Each system's texts with the query's terms marked, and where the other system has them."""
        marker, sides = Marker.of_terms(self.analyzer, query), []
        for name, rows in found.items():
            others = [{row["text_id"]: row["rank"] for row in mine} for other, mine in found.items() if other != name]
            shown = [
                {**row, **passage(row | {"text": row["text"] or "", "fenced": False}, marker)}
                | {"other": _elsewhere(row, others)}
                for row in rows
            ]
            sides.append({"name": name, "rows": shown})
        return sides

    def _render(self, query: str, sides: Sequence[Mapping[str, Any]], wrong: str = "") -> str:
        ids = [{row["text_id"] for row in side["rows"]} for side in sides]
        names = " and ".join(self.service.systems)
        given = {"folder": self.folder, "about": self.about, "systems": names, "both": len(self.service.systems) > 1}
        shared = len(set.intersection(*ids)) if ids else 0
        given |= {"query": query, "wrong": wrong, "characters": CHARACTERS, "depth": DEPTH, "shared": shared}
        return _PAGES.render("search/search.html", **given, sides=sides)


def _elsewhere(row: Row, others: Sequence[Mapping[str, int]]) -> str:
    if not others:
        return ""
    rank = others[0].get(row["text_id"])
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

    def failed(self, request: Request, status: int, what: str = "") -> Response:
        """See `Site`."""
        if request.url.path not in {SEARCH, HEALTH}:
            return super().failed(request, status, what)
        heading, sentence = self.said.get(status, self.said[HTTPStatus.BAD_REQUEST])
        return JSONResponse({"error": what or f"{heading}. {sentence}"}, status)


_SITE = _SearchSite(_PAGES, _SAID, lambda _request: "./", "To the search")


def search_app(console: Console, token: str, hosts: Sequence[str]) -> ASGIApp:
    """The service; `/health` is answered without the token, the rest is as for `Site.app`."""
    routes = [
        Route("/", console.page),
        Route(SEARCH, console.search, methods=["POST"]),
        Route(HEALTH, console.health),
    ]
    return _SITE.app(routes, {InputError: _wrong, Busy: _busy}, token, hosts, free=(HEALTH,))


async def _wrong(request: Request, error: Exception) -> Response:
    return _SITE.failed(request, HTTPStatus.BAD_REQUEST, str(error))


async def _busy(request: Request, error: Exception) -> Response:
    found = _SITE.failed(request, HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    found.headers["Retry-After"] = "1"
    return found
