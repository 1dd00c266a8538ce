"""The pages of a review: what is shown of a pair, of a name, of the end, and of an error."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined

from flows.review.guard import policy
from pipeline.errors import ArtifactError
from pipeline.review.deck import Deck, Neighbour, Pair
from pipeline.review.marking import Block, Marker
from pipeline.review.reviewers import NAME_CHARACTERS
from pipeline.review.scale import Scale
from pipeline.review.turns import Turns
from pipeline.terms import Analyzer

_PAGES = Environment(
    loader=PackageLoader("flows.review"),
    autoescape=True,
    undefined=StrictUndefined,
    auto_reload=False,
    trim_blocks=True,
)


def _sha256(page: str) -> str:
    """Of a file that the layout includes, in Base64."""
    text = _PAGES.get_template(page).render()
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


POLICY = policy(_sha256("page.css"), _sha256("keys.js"))


@dataclass(frozen=True)
class Review:
    """A review under way.

    Attributes:
        deck: the pairs.
        turns: who is asked what.
        scale: what reviewers may answer.
        analyzer: of the run's BM25, for the marks.
        show_judge: reviewers see what the judge said.
    """

    deck: Deck
    turns: Turns
    scale: Scale
    analyzer: Analyzer
    show_judge: bool

    def next(self, reviewer: str, around: str) -> str:
        """The page of the reviewer's next pair, or the last page.

        Args:
            around: name of the pair whose neighbours are wanted; those of another one are not shown.
        """
        row = self.turns.next(reviewer)
        shared = self._shared(reviewer)
        if row is None:
            return _render("done.html", **shared)
        pair = self.deck[row]
        return _render("pair.html", **shared, **self._pair(reviewer, row, pair), **self._around(row, pair, around))

    def names(self, given: str = "", wrong: str = "") -> str:
        """The page that asks for a name; `wrong` says what is wrong with the one given."""
        return _render(
            "name.html",
            pairs=len(self.deck),
            queries=self.deck.queries,
            labelled=self.turns.labelled,
            reviewers=self.turns.reviewers(),
            characters=NAME_CHARACTERS,
            given=given,
            wrong=wrong,
        )

    def _shared(self, reviewer: str) -> dict[str, Any]:
        return {
            "reviewer": reviewer,
            "query": urlencode({"reviewer": reviewer}),
            "progress": self.turns.progress(reviewer),
            "last": self.turns.last(reviewer),
        }

    def _pair(self, reviewer: str, row: int, pair: Pair) -> dict[str, Any]:
        was, marker = self.turns.taken_back(reviewer, row), Marker(self.analyzer, pair.query)
        return {
            "pair": pair,
            "queries": self.deck.queries,
            "tenant": pair.tenant if self.deck.tenants > 1 else None,
            "title": marker.pieces(pair.title or ""),
            "heading": marker.pieces(pair.heading or ""),
            "blocks": marker.blocks(pair.text),
            "url": pair.url if is_web(pair.url) else None,
            "answers": self._answers(was.relevance if was else None),
            "graded": self.scale.graded,
            "was": was and self.scale.called(was.relevance),
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

    def _around(self, row: int, pair: Pair, wanted: str) -> dict[str, Any]:
        if wanted != pair.name:
            return {"around": False, "before": None, "after": None, "no_neighbours": ""}
        marker, reason = Marker(self.analyzer, pair.query), ""
        before, after = None, None
        try:
            before, after = self.deck.around(row)
        except ArtifactError as error:
            reason = f"Not to be had: {error}"
        else:
            reason = "" if before or after else "The document has no other chunk"
        return {
            "around": True,
            "before": _blocks(before, marker),
            "after": _blocks(after, marker),
            "no_neighbours": reason,
        }


def error_page(heading: str, what: str, back: str | None) -> str:
    """A page for what went wrong; `back` is where the review goes on."""
    return _render("error.html", heading=heading, what=what, back=back)


def is_web(url: str | None) -> bool:
    """Whether a document's address may become a link: `javascript:` and the like may not."""
    try:
        return url is not None and urlsplit(url.strip()).scheme.lower() in ("http", "https")
    except ValueError:
        return False


def said_by_judge(pair: Pair) -> str:
    """The judge's verdict in words."""
    if pair.relevant is None:
        return "no label"
    label = "relevant" if pair.relevant else "not relevant"
    grade = "" if pair.grade is None else f", grade {pair.grade}"
    return label + grade + ("" if pair.probability is None else f", probability {pair.probability:.2f}")


def _blocks(neighbour: Neighbour | None, marker: Marker) -> list[Block] | None:
    return marker.blocks(neighbour.text) if neighbour else None


def _render(page: str, **values: Any) -> str:
    return _PAGES.get_template(page).render(**values)
