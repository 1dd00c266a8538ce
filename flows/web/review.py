"""A review's pages: what is shown of a name, a pair and the end, and the routes of an answer and an undo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from darklode.flows.web.guard import BODY_BYTES
from darklode.flows.web.pages import Pages, Site, is_web
from darklode.pipeline.base.errors import ArtifactError, NotWritable
from darklode.pipeline.base.highlighting import Highlighter, TextBlock
from darklode.pipeline.base.terms import Analyzer
from darklode.pipeline.validate.review.assignment import NAME_CHARACTERS, ReviewSession, reviewer_name
from darklode.pipeline.validate.review.grades import Scale
from darklode.pipeline.validate.review.journal import clean_rationale
from darklode.pipeline.validate.review.pairs import Neighbour, ReviewPair, ReviewPairs

_PAGES = Pages("Review", ("page.css", "texts.css", "review/review.css"), ("keys.js", "review/review.js"))


@dataclass(frozen=True)
class ReviewApp:
    """A review under way.

    Attributes:
        deck: the pairs.
        turns: who is asked what.
        scale: what reviewers may answer.
        analyzer: of the run's BM25, for the marks.
        show_judge: reviewers see what the judge said.
    """

    deck: ReviewPairs
    turns: ReviewSession
    scale: Scale
    analyzer: Analyzer
    show_judge: bool

    def next_page(self, reviewer: str, around: str) -> str:
        """The page of the reviewer's next pair, or the last page.

        Args:
            around: name of the pair whose neighbours are wanted; those of another one are not shown.
        """
        row = self.turns.next_pair(reviewer)
        shared = self._shared_context(reviewer)
        if row is None:
            return _PAGES.render("review/done.html", **shared)
        pair = self.deck[row]
        return _PAGES.render(
            "review/pair.html", **shared, **self._pair(reviewer, row, pair), **self._neighbor_context(row, pair, around)
        )

    def document(self, row: int) -> str:
        """The document of a pair, with its chunk.

        Raises:
            ArtifactError: the run was built anew.
        """
        reading = self.deck.document(row)
        marker = Highlighter.of_terms(self.analyzer, self.deck[row].query)
        parts = marker.cut((reading.before, reading.chunk, reading.after))
        return _PAGES.render("review/document.html", reading=reading, parts=parts)

    def names(self, name: str = "", wrong: str = "") -> str:
        """The page that asks for a name; `wrong` says what is wrong with the one given."""
        return _PAGES.render(
            "review/name.html",
            pairs=len(self.deck),
            queries=self.deck.queries,
            labelled=self.turns.n_labelled,
            reviewers=self.turns.reviewers(),
            characters=NAME_CHARACTERS,
            given=name,
            wrong=wrong,
            answers=self._answers(None),
            graded=self.scale.is_graded,
        )

    def _shared_context(self, reviewer: str) -> dict[str, Any]:
        return {
            "reviewer": reviewer,
            "query": urlencode({"reviewer": reviewer}),
            "progress": self.turns.progress(reviewer),
            "last": self.turns.last_answer(reviewer),
        }

    def _pair(self, reviewer: str, row: int, pair: ReviewPair) -> dict[str, Any]:
        was, marker = self.turns.retracted_answer(reviewer, row), Highlighter.of_terms(self.analyzer, pair.query)
        return {
            "pair": pair,
            "queries": self.deck.queries,
            "tenant": pair.tenant if self.deck.tenants > 1 else None,
            "title": marker.pieces(pair.title or ""),
            "heading": marker.pieces(pair.heading or ""),
            "blocks": marker.blocks(pair.text, fenced=pair.fenced),
            "url": pair.url if is_web(pair.url) else None,
            "answers": self._answers(was.relevance if was else None),
            "graded": self.scale.is_graded,
            "was": was and self.scale.grade_name(was.relevance),
            "rationale": (was and was.rationale) or "",
            "judge": said_by_judge(pair) if self.show_judge else None,
        }

    def _answers(self, before: int | None) -> list[dict[str, object]]:
        return [
            {
                "grade": grade,
                "name": name[:1].upper() + name[1:],
                "relevant": grade > 0,
                "before": grade == before,
            }
            for grade, name in self.scale.names.items()
        ]

    def _neighbor_context(self, row: int, pair: ReviewPair, anchor: str) -> dict[str, Any]:
        if anchor != pair.name:
            return {"around": False, "before": None, "after": None, "no_neighbours": ""}
        marker = Highlighter.of_terms(self.analyzer, pair.query)
        try:
            before, after = self.deck.neighbors(row)
            reason = "" if before or after else "The document has no other chunk"
        except ArtifactError as error:
            before, after, reason = None, None, f"Not to be had: {error}"
        return {
            "around": True,
            "before": _blocks(before, marker),
            "after": _blocks(after, marker),
            "no_neighbours": reason,
        }


def said_by_judge(pair: ReviewPair) -> str:
    """The judge's verdict in words."""
    if pair.relevant is None:
        return "no label"
    label = "relevant" if pair.relevant else "not relevant"
    grade = "" if pair.grade is None else f", grade {pair.grade}"
    return label + grade + ("" if pair.probability is None else f", probability {pair.probability:.2f}")


def _blocks(neighbour: Neighbour | None, marker: Highlighter) -> list[TextBlock] | None:
    return marker.blocks(neighbour.text, fenced=neighbour.fenced) if neighbour else None


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


def review_app(review: ReviewApp, token: str, hosts: Sequence[str]) -> ASGIApp:
    """The pages of a review; the rest is as for `Site.app`."""
    pages = _ReviewEndpoints(review)
    routes = [
        Route("/", pages.name),
        Route("/pair", pages.pair, methods=["GET"]),
        Route("/pair", pages.answer, methods=["POST"]),
        Route("/document", pages.document),
        Route("/undo", pages.undo, methods=["POST"]),
    ]
    return _SITE.app(
        routes, {OSError: _not_saved, NotWritable: _not_saved, ArtifactError: _not_found_page}, token, hosts
    )


class _ReviewEndpoints:
    """Endpoints; whatever touches the disk is done in a thread."""

    def __init__(self, review: ReviewApp) -> None:
        self._review = review

    async def name(self, _request: Request) -> HTMLResponse:
        return HTMLResponse(self._review.names())

    async def pair(self, request: Request) -> HTMLResponse:
        reviewer = self._reviewer(request)
        if reviewer is None:
            reviewer_parameter = request.query_params.get("reviewer", "")[: 2 * NAME_CHARACTERS]
            wrong = f"A name has 1 to {NAME_CHARACTERS} letters, digits or signs."
            return HTMLResponse(self._review.names(reviewer_parameter, wrong), HTTPStatus.BAD_REQUEST)
        around = request.query_params.get("around", "")
        return HTMLResponse(await run_in_threadpool(self._review.next_page, reviewer, around))

    async def document(self, request: Request) -> HTMLResponse:
        row = self._review.deck.rows.get(request.query_params.get("pair", ""))
        if row is None:
            raise HTTPException(410)
        return HTMLResponse(await run_in_threadpool(self._review.document, row))

    async def answer(self, request: Request) -> RedirectResponse:
        reviewer, sent = await self._read_form(request)
        answer_text, name = sent.get("answer", ""), sent.get("pair", "")
        grades = {str(grade): grade for grade in self._review.scale.names}
        if answer_text != SKIP and answer_text not in grades:
            raise HTTPException(400)
        row = self._review.deck.rows.get(name)
        if row is None:
            raise HTTPException(410)
        await run_in_threadpool(
            self._review.turns.answer,
            reviewer,
            self._review.deck[row],
            grades.get(answer_text),
            clean_rationale(sent.get("rationale")),
            shown=self._review.show_judge,
        )
        return _onward(reviewer)

    async def undo(self, request: Request) -> RedirectResponse:
        reviewer, sent = await self._read_form(request)
        await run_in_threadpool(self._review.turns.undo, reviewer, sent.get("pair", ""))
        return _onward(reviewer)

    async def _read_form(self, request: Request) -> tuple[str, dict[str, str]]:
        """Who sent a form, and its fields."""
        reviewer = self._reviewer(request)
        if reviewer is None:
            raise HTTPException(400)
        form = await request.form(max_files=0, max_fields=10)
        return reviewer, {name: value for name, value in form.items() if isinstance(value, str)}

    def _reviewer(self, request: Request) -> str | None:
        name = reviewer_name(request.query_params.get("reviewer", ""))
        return None if name is None else self._review.turns.canonical_name(name)


def _onward(reviewer: str) -> RedirectResponse:
    """To the next pair, by a request that can be repeated."""
    return RedirectResponse(f"pair?{urlencode({'reviewer': reviewer})}", HTTPStatus.SEE_OTHER)


async def _not_found_page(request: Request, error: Exception) -> Response:
    return _SITE.error_page(request, 410, f"{error}.".capitalize())


async def _not_saved(request: Request, error: Exception) -> Response:
    errors.print("[red]error:[/red]", printable(f"an answer could not be saved: {error}"), soft_wrap=True)
    return _SITE.error_page(request, HTTPStatus.INSUFFICIENT_STORAGE)


def _back_link(request: Request) -> str:
    """Where the review goes on, from any page below the token."""
    name = reviewer_name(request.query_params.get("reviewer", ""))
    return "./" if name is None else f"pair?{urlencode({'reviewer': name})}"


_SITE = Site(_PAGES, _SAID, _back_link, "Go on with the review")
