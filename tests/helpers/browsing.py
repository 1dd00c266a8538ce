"""Runs to browse, and their pages on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime

import pyarrow as pa

from darklode.flows.web.browse import Browser, browse_app
from darklode.flows.web.server import ListenAddress, listen
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.terms import Analyzer
from darklode.pipeline.browse.catalogue import Catalogue, open_catalogue
from darklode.pipeline.browse.filtering import ListPage, ListRequest, find_rows
from darklode.pipeline.browse.lists import lists_of
from darklode.pipeline.validate.review.journal import AnswerJournal, ReviewAnswer
from darklode.schemas.tables import REJECTS
from helpers.finished_run import CHUNK_IDS, QUERY_IDS, TENANTS, finished_run
from helpers.pages import serving
from helpers.review_run import TOKEN
from helpers.runs import put
from helpers.small_log import FIRST, Search, mine

WHEN = datetime(2026, 1, 1, tzinfo=UTC)
ACME = TENANTS[0]


def built(url: str) -> Run:
    """A benchmark with rejects, and answers of two people on the pairs of acme's first query."""
    run = finished_run(url)
    rows = [
        {"table": "raw_queries", "tenant": ACME, "id": "q7", "stage": "clean.noise", "reason": "too long"},
        {"table": "documents", "stage": "ingest.documents", "reason": "not UTF-8", "file": "a.csv", "line": 7},
        {"table": "documents", "stage": "ingest.documents", "reason": "no text", "payload": "<b>Ärger</b> %"},
    ]
    put(run, "rejects", pa.Table.from_pylist(rows, schema=REJECTS.schema))
    journal = AnswerJournal(run.store)
    said = [(0, "Ann", 0, "a wrong page"), (0, "Ben", 0, None), (1, "Ann", 1, None), (1, "Ben", 0, None)]
    for chunk, reviewer, relevance, why in said:
        journal.append(ReviewAnswer(ACME, QUERY_IDS[0], CHUNK_IDS[chunk], reviewer, relevance, WHEN, why))
    return run


LOG: dict[date, list[Search]] = {
    FIRST: [
        Search("default", "s1", 1, "reset password", ("d0", "d1"), frozenset({2})),
        Search("default", "s2", 2, "Reset password", ("d2", "d1"), frozenset({2})),
        Search("default", "s3", 3, "reset api", ("d3", "d4"), frozenset()),
        Search("tern", "s4", 4, "refund", ("d0",), frozenset()),
    ]
}


def mined(url: str) -> Run:
    """A mined run of one day: three queries of one tenant, one of another."""
    run = Run(url)
    mine(run, LOG)
    return run


def asked(catalogue: Catalogue, key: str, **given: str) -> ListPage:
    """A page of one of its lists."""
    listing = lists_of(catalogue)[key]
    return find_rows(catalogue, listing, ListRequest.from_parameters(listing, given))


@dataclass(frozen=True)
class Browsed:
    """Pages that are served."""

    url: str
    port: int


@contextmanager
def served(run: Run) -> Iterator[Browsed]:
    """The pages of a run, on a free port."""
    place = ListenAddress("127.0.0.1", 0, ())
    with (
        open_catalogue(run) as catalogue,
        listen(place) as bound,
        serving(browse_app(Browser(catalogue, Analyzer()), TOKEN, place.allowed_hosts), bound),
    ):
        yield Browsed(place.addresses(bound, TOKEN)[0], bound.getsockname()[1])
