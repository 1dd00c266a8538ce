"""The routes of a review: a name, a pair, an answer, an undo."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from flows.console import errors, printable
from flows.review.guard import BODY_BYTES, Guard
from flows.review.pages import POLICY, Review, error_page
from pipeline.review.journal import clean_rationale
from pipeline.review.reviewers import NAME_CHARACTERS, reviewer_name

SKIP = "skip"

_SAID = {
    400: ("That was no answer", "The page sent something that cannot be understood. Nothing was saved."),
    404: ("There is no such page", "Open the address that `darklode review` printed, with everything in it."),
    405: ("There is no such page", "Open the address that `darklode review` printed."),
    410: ("That pair is gone", "The sample was drawn anew since the page was opened. Nothing was saved."),
    413: ("That is too much", f"An answer and its reason may take {BODY_BYTES:,} bytes. Nothing was saved."),
    500: ("Something went wrong", "The terminal in which `darklode review` runs says what. Is the last answer there?"),
    507: ("Your answer is not saved", "The server could not write it. See to it, go back, and answer again."),
}


def review_app(review: Review, token: str, hosts: Sequence[str]) -> ASGIApp:
    """The pages below `/{token}/`, for requests to one of these hosts.

    Args:
        hosts: names and addresses, an IPv6 address in brackets; any other is refused, so that no web site can reach a
            reviewer's server under a name of its own (DNS rebinding).
    """
    pages = _Pages(review)
    routes = [
        Route("/", pages.name),
        Route("/pair", pages.pair, methods=["GET"]),
        Route("/pair", pages.answer, methods=["POST"]),
        Route("/undo", pages.undo, methods=["POST"]),
    ]
    handlers = {HTTPException: _refused, ClientDisconnect: _refused, OSError: _not_saved, Exception: _failed}
    known = Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    app = Starlette(routes=routes, middleware=[known], exception_handlers=handlers)
    app.router.redirect_slashes = False  # it would lead out of the token
    return Guard(app, token=token, policy=POLICY)


class _Pages:
    """Endpoints; whatever touches the disk is done in a thread."""

    def __init__(self, review: Review) -> None:
        self._review = review

    async def name(self, _request: Request) -> HTMLResponse:
        return HTMLResponse(self._review.names())

    async def pair(self, request: Request) -> HTMLResponse:
        reviewer = self._reviewer(request)
        if reviewer is None:
            given = request.query_params.get("reviewer", "")[: 2 * NAME_CHARACTERS]
            wrong = f"A name has 1 to {NAME_CHARACTERS} letters, digits or signs."
            return HTMLResponse(self._review.names(given, wrong), HTTPStatus.BAD_REQUEST)
        around = request.query_params.get("around", "")
        return HTMLResponse(await run_in_threadpool(self._review.next, reviewer, around))

    async def answer(self, request: Request) -> RedirectResponse:
        reviewer, sent = await self._posted(request)
        said, name = sent.get("answer", ""), sent.get("pair", "")
        grades = {str(grade): grade for grade in self._review.scale.names}
        if said != SKIP and said not in grades:
            raise HTTPException(400)
        row = self._review.deck.rows.get(name)
        if row is None:
            raise HTTPException(410)
        await run_in_threadpool(
            self._review.turns.answer,
            reviewer,
            self._review.deck[row],
            grades.get(said),
            clean_rationale(sent.get("rationale")),
            shown=self._review.show_judge,
        )
        return _onward(reviewer)

    async def undo(self, request: Request) -> RedirectResponse:
        reviewer, sent = await self._posted(request)
        await run_in_threadpool(self._review.turns.undo, reviewer, sent.get("pair", ""))
        return _onward(reviewer)

    async def _posted(self, request: Request) -> tuple[str, dict[str, str]]:
        """Who sent a form, and its fields."""
        reviewer = self._reviewer(request)
        if reviewer is None:
            raise HTTPException(400)
        form = await request.form(max_files=0, max_fields=10)
        return reviewer, {name: value for name, value in form.items() if isinstance(value, str)}

    def _reviewer(self, request: Request) -> str | None:
        name = reviewer_name(request.query_params.get("reviewer", ""))
        return None if name is None else self._review.turns.spelled(name)


def _onward(reviewer: str) -> RedirectResponse:
    """To the next pair, by a request that can be repeated."""
    return RedirectResponse(f"pair?{urlencode({'reviewer': reviewer})}", HTTPStatus.SEE_OTHER)


async def _refused(request: Request, error: Exception) -> HTMLResponse:
    status = error.status_code if isinstance(error, HTTPException) else 400
    heading, what = _SAID.get(status, _SAID[400])
    return HTMLResponse(error_page(heading, what, _back(request) if status != 404 else None), status)


async def _not_saved(request: Request, error: Exception) -> HTMLResponse:
    errors.print("[red]error:[/red]", printable(f"an answer could not be saved: {error}"), soft_wrap=True)
    return HTMLResponse(error_page(*_SAID[507], _back(request)), HTTPStatus.INSUFFICIENT_STORAGE)


async def _failed(request: Request, _error: Exception) -> HTMLResponse:
    return HTMLResponse(error_page(*_SAID[500], _back(request)), HTTPStatus.INTERNAL_SERVER_ERROR)


def _back(request: Request) -> str:
    """Where the review goes on, from any page below the token."""
    name = reviewer_name(request.query_params.get("reviewer", ""))
    return "./" if name is None else f"pair?{urlencode({'reviewer': name})}"
