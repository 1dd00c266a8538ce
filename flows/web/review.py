"""Web pages of `darklode review`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from darklode.flows.console import errors, printable
from darklode.flows.web.guard import MAX_BODY_BYTES
from darklode.flows.web.pages import Pages, Site, is_web
from darklode.pipeline.base.errors import ArtifactError, NotWritable
from darklode.pipeline.base.highlighting import Highlighter, TextBlock
from darklode.pipeline.base.terms import Analyzer
from darklode.pipeline.validate.review.assignment import NAME_CHARACTERS, ReviewSession, reviewer_name
from darklode.pipeline.validate.review.grades import Scale
from darklode.pipeline.validate.review.journal import clean_rationale
from darklode.pipeline.validate.review.pairs import Neighbour, ReviewPair, ReviewPairs
from darklode.pipeline.validate.review.stopping import StoppingRule

REASON_KEYS = {
    "o": "off topic",
    "g": "too general",
    "q": "answers another question",
    "p": "partly answers",
    "d": "outdated",
}
"""Usual reasons by their key on the page; equal words let `judge teach` count them."""

_PAGES = Pages("Review", ("page.css", "texts.css", "review/review.css"), ("keys.js", "review/review.js"))


@dataclass(frozen=True)
class ReviewApp:
    """A review: renders its pages.

    Attributes:
        pairs: the sampled pairs.
        session: assigns pairs to reviewers and stores answers.
        scale: allowed answers.
        analyzer: the run's BM25 analyzer, for highlights.
        show_judge: whether reviewers see the judge's verdict.
        stopping: says when the labels suffice.
    """

    pairs: ReviewPairs
    session: ReviewSession
    scale: Scale
    analyzer: Analyzer
    show_judge: bool
    stopping: StoppingRule = field(default_factory=lambda: StoppingRule(None))

    def next_page(self, reviewer: str, around: str) -> str:
        """Page of the reviewer's next pair, or the final page.

        Args:
            around: name of the pair whose neighbouring chunks to show; ignored if another pair is next.
        """
        row = self.session.next_pair(reviewer)
        shared = self._shared_context(reviewer)
        if row is None:
            return _PAGES.render("review/done.html", **shared)
        pair = self.pairs[row]
        return _PAGES.render(
            "review/pair.html", **shared, **self._pair(reviewer, row, pair), **self._neighbor_context(row, pair, around)
        )

    def document(self, row: int) -> str:
        """Page of a pair's document with its chunk.

        Raises:
            ArtifactError: the run was rebuilt.
        """
        reading = self.pairs.document(row)
        highlighter = Highlighter.of_terms(self.analyzer, self.pairs[row].query)
        parts = highlighter.cut((reading.before, reading.chunk, reading.after))
        return _PAGES.render("review/document.html", reading=reading, parts=parts)

    def names(self, name: str = "", error: str = "") -> str:
        """Page that asks for the reviewer's name; `error` explains why `name` was rejected."""
        return _PAGES.render(
            "review/name.html",
            pairs=len(self.pairs),
            queries=self.pairs.queries,
            labelled=self.session.n_labelled,
            reviewers=self.session.reviewers(),
            characters=NAME_CHARACTERS,
            name=name,
            error=error,
            answers=self._answers(None),
            graded=self.scale.is_graded,
        )

    def _shared_context(self, reviewer: str) -> dict[str, Any]:
        return {
            "reviewer": reviewer,
            "query": urlencode({"reviewer": reviewer}),
            "progress": self.session.progress(reviewer),
            "last": self.session.last_answer(reviewer),
            "stopping": self.stopping.sentence(self.session.labels()),
        }

    def _pair(self, reviewer: str, row: int, pair: ReviewPair) -> dict[str, Any]:
        undone = self.session.retracted_answer(reviewer, row)
        highlighter = Highlighter.of_terms(self.analyzer, pair.query)
        return {
            "pair": pair,
            "queries": self.pairs.queries,
            "tenant": pair.tenant if self.pairs.tenants > 1 else None,
            "title": highlighter.pieces(pair.title or ""),
            "heading": highlighter.pieces(pair.heading or ""),
            "blocks": highlighter.blocks(pair.text, fenced=pair.fenced),
            "url": pair.url if is_web(pair.url) else None,
            "answers": self._answers(undone.relevance if undone else None),
            "graded": self.scale.is_graded,
            "undone": undone and self.scale.grade_name(undone.relevance),
            "rationale": (undone and undone.rationale) or "",
            "reasons": REASON_KEYS,
            "judge": format_verdict(pair) if self.show_judge else None,
        }

    def _answers(self, previous: int | None) -> list[dict[str, object]]:
        return [
            {
                "grade": grade,
                "name": name[:1].upper() + name[1:],
                "relevant": grade > 0,
                "previous": grade == previous,
            }
            for grade, name in self.scale.names.items()
        ]

    def _neighbor_context(self, row: int, pair: ReviewPair, anchor: str) -> dict[str, Any]:
        if anchor != pair.name:
            return {"around": False, "before": None, "after": None, "no_neighbours": ""}
        highlighter = Highlighter.of_terms(self.analyzer, pair.query)
        try:
            before, after = self.pairs.neighbors(row)
            reason = "" if before or after else "The document has no other chunk"
        except ArtifactError as error:
            before, after, reason = None, None, f"Not available: {error}"
        return {
            "around": True,
            "before": _blocks(before, highlighter),
            "after": _blocks(after, highlighter),
            "no_neighbours": reason,
        }


def format_verdict(pair: ReviewPair) -> str:
    """The judge's verdict, grade and probability."""
    if pair.relevant is None:
        return "no label"
    label = "relevant" if pair.relevant else "not relevant"
    grade = "" if pair.grade is None else f", grade {pair.grade}"
    return label + grade + ("" if pair.probability is None else f", probability {pair.probability:.2f}")


def _blocks(neighbour: Neighbour | None, highlighter: Highlighter) -> list[TextBlock] | None:
    return highlighter.blocks(neighbour.text, fenced=neighbour.fenced) if neighbour else None


SKIP_ANSWER = "skip"

_MESSAGES = {
    400: ("Invalid request", "The page sent invalid data. Nothing was saved."),
    404: ("Page not found", "Open the complete address that `darklode review` printed."),
    405: ("Page not found", "Open the address that `darklode review` printed."),
    410: ("Pair not found", "A new sample was drawn after this page was opened. Nothing was saved."),
    413: (
        "Request too large",
        f"The limit for an answer with its reason is {MAX_BODY_BYTES:,} bytes. Nothing was saved.",
    ),
    500: ("Internal error", "See the terminal in which `darklode review` runs. Check that your last answer was saved."),
    507: ("Answer not saved", "The server could not write it, e.g. because the disk is full. Then answer again."),
}


def review_app(review: ReviewApp, token: str, hosts: Sequence[str]) -> ASGIApp:
    """Create the app; see `Site.app` for `token` and `hosts`."""
    pages = _ReviewEndpoints(review)
    routes = [
        Route("/", pages.name),
        Route("/pair", pages.pair, methods=["GET"]),
        Route("/pair", pages.answer, methods=["POST"]),
        Route("/document", pages.document),
        Route("/undo", pages.undo, methods=["POST"]),
    ]
    return _SITE.app(
        routes, {OSError: _show_not_saved, NotWritable: _show_not_saved, ArtifactError: _show_gone}, token, hosts
    )


class _ReviewEndpoints:
    """Endpoints; disk access runs in a thread."""

    def __init__(self, review: ReviewApp) -> None:
        self._review = review

    async def name(self, _request: Request) -> HTMLResponse:
        return HTMLResponse(self._review.names())

    async def pair(self, request: Request) -> HTMLResponse:
        reviewer = self._reviewer(request)
        if reviewer is None:
            reviewer_parameter = request.query_params.get("reviewer", "")[: 2 * NAME_CHARACTERS]
            problem = f"A name must have 1 to {NAME_CHARACTERS} letters, digits or signs."
            return HTMLResponse(self._review.names(reviewer_parameter, problem), HTTPStatus.BAD_REQUEST)
        around = request.query_params.get("around", "")
        return HTMLResponse(await run_in_threadpool(self._review.next_page, reviewer, around))

    async def document(self, request: Request) -> HTMLResponse:
        row = self._review.pairs.rows.get(request.query_params.get("pair", ""))
        if row is None:
            raise HTTPException(410)
        return HTMLResponse(await run_in_threadpool(self._review.document, row))

    async def answer(self, request: Request) -> RedirectResponse:
        reviewer, form = await self._read_form(request)
        answer_text, name = form.get("answer", ""), form.get("pair", "")
        grades = {str(grade): grade for grade in self._review.scale.names}
        if answer_text != SKIP_ANSWER and answer_text not in grades:
            raise HTTPException(400)
        row = self._review.pairs.rows.get(name)
        if row is None:
            raise HTTPException(410)
        await run_in_threadpool(
            self._review.session.answer,
            reviewer,
            self._review.pairs[row],
            grades.get(answer_text),
            clean_rationale(form.get("rationale")),
            shown=self._review.show_judge,
        )
        return _redirect_to_next(reviewer)

    async def undo(self, request: Request) -> RedirectResponse:
        reviewer, form = await self._read_form(request)
        await run_in_threadpool(self._review.session.undo, reviewer, form.get("pair", ""))
        return _redirect_to_next(reviewer)

    async def _read_form(self, request: Request) -> tuple[str, dict[str, str]]:
        """The reviewer and the fields of a submitted form."""
        reviewer = self._reviewer(request)
        if reviewer is None:
            raise HTTPException(400)
        form = await request.form(max_files=0, max_fields=10)
        return reviewer, {name: value for name, value in form.items() if isinstance(value, str)}

    def _reviewer(self, request: Request) -> str | None:
        name = reviewer_name(request.query_params.get("reviewer", ""))
        return None if name is None else self._review.session.canonical_name(name)


def _redirect_to_next(reviewer: str) -> RedirectResponse:
    """Redirect to the next pair, so that reloading the page does not send the form again."""
    return RedirectResponse(f"pair?{urlencode({'reviewer': reviewer})}", HTTPStatus.SEE_OTHER)


async def _show_gone(request: Request, error: Exception) -> Response:
    return _SITE.error_page(request, 410, f"{error}.".capitalize())


async def _show_not_saved(request: Request, error: Exception) -> Response:
    errors.print("[red]error:[/red]", printable(f"an answer could not be saved: {error}"), soft_wrap=True)
    return _SITE.error_page(request, HTTPStatus.INSUFFICIENT_STORAGE)


def _back_link(request: Request) -> str:
    """Relative URL of the reviewer's next pair."""
    name = reviewer_name(request.query_params.get("reviewer", ""))
    return "./" if name is None else f"pair?{urlencode({'reviewer': name})}"


_SITE = Site(_PAGES, _MESSAGES, _back_link, "Continue the review")
