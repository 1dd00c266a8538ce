"""A small run with a sample to review, and its page on loopback."""

import http.client
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import yaml

from darklode.flows.config import load_settings
from darklode.flows.jobs.validate_benchmark import steps
from darklode.flows.web.review import ReviewApp, review_app
from darklode.flows.web.server import ListenAddress, listen
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.terms import Analyzer
from darklode.pipeline.validate.review.assignment import ReviewSession
from darklode.pipeline.validate.review.grades import BINARY, Scale
from darklode.pipeline.validate.review.journal import AnswerJournal
from darklode.pipeline.validate.review.pairs import JUDGE_TABLE, TABLES_READ, ReviewPairs, open_review_pairs
from darklode.schemas.review_tables import REVIEW_SAMPLE
from darklode.schemas.tables import TABLES
from helpers.pages import serving
from helpers.runs import put

TENANT = "acme"
TOKEN = "a-token-of-a-test"
SHARED_EVERY = 3
PER_QUERY = 5

Values = Mapping[int, str]
Reply = tuple[int, http.client.HTTPMessage, str]
"""Status, headers and body."""


def review_run(
    url: str,
    pairs: int = 20,
    *,
    texts: Values | None = None,
    queries: Values | None = None,
    titles: Values | None = None,
    urls: Values | None = None,
    documents: Values | None = None,
    starts: Mapping[int, int] | None = None,
    ends: Mapping[int, int] | None = None,
    ids: Sequence[str] | None = None,
    uncertain: Mapping[int, float] | None = None,
) -> Run:
    """A run whose sample stands and has these pairs, five of each query; every third one is shared.

    `uncertain` has the probabilities of pairs whose label is uncertain; they are no part of the sample.

    Document n has the chunks 2n and 2n + 1. What is not given by number is filled in. Pair n is that of chunk n.
    """
    run, numbers = Run(url), range(pairs)
    asked = range(1 + (pairs - 1) // PER_QUERY)
    chunk_ids = ids or [f"doc{n // 2}#{n}" for n in numbers]
    doc_ids = [f"doc{n // 2}" for n in numbers]
    _put(
        run,
        "queries",
        tenant=[TENANT] * len(asked),
        query_id=[f"q{n}" for n in asked],
        text=[(queries or {}).get(n, f"how do I rotate key {n}") for n in asked],
        n_words=[6] * len(asked),
        language=["en"] * len(asked),
        language_score=[0.9] * len(asked),
        cluster_id=[0] * len(asked),
        n_represented=[1] * len(asked),
        split=["train"] * len(asked),
    )
    _put(
        run,
        "chunks",
        tenant=[TENANT] * pairs,
        chunk_id=chunk_ids,
        doc_id=doc_ids,
        position=[n % 2 for n in numbers],
        start=[(starts or {}).get(n, 0) for n in numbers],
        end=[(ends or {}).get(n, 1) for n in numbers],
        text=[(texts or {}).get(n, f"Rotating keys, part {n}: open Settings.") for n in numbers],
        title=[(titles or {}).get(n, "Keys") for n in numbers],
        heading=["Guide › Rotation"] * pairs,
        content_hash=[f"h{n}" for n in numbers],
    )
    firsts = range(0, pairs, 2)
    _put(
        run,
        "documents",
        tenant=[TENANT] * len(firsts),
        doc_id=[doc_ids[n] for n in firsts],
        title=["Keys"] * len(firsts),
        text=[(documents or {}).get(n, "…") for n in firsts],
        url=[(urls or {}).get(n, "https://example.org/keys") for n in firsts],
        source=["test"] * len(firsts),
        content_hash=["h"] * len(firsts),
    )
    keys = {
        "tenant": [TENANT] * pairs,
        "query_id": [f"q{n // PER_QUERY}" for n in numbers],
        "chunk_id": chunk_ids,
    }
    _put(
        run,
        "verdicts",
        **keys,
        judge_id=["embedded-1"] * pairs,
        relevant=[n % 2 == 0 for n in numbers],
        probability=np.linspace(0.1, 0.9, pairs),
    )
    _put(
        run,
        "pool",
        **keys,
        retrievers=[["bm25"]] * pairs,
        best_rank=[1] * pairs,
        fused_score=[0.1] * pairs,
    )
    unsure = uncertain or {}
    _put(
        run,
        "qrels",
        **keys,
        relevance=[None if n in unsure else 0 for n in numbers],
        weight=[unsure.get(n, 0.1) for n in numbers],
        source=["judge"] * pairs,
    )
    sample = REVIEW_SAMPLE.rows(
        keys
        | {
            "position": list(numbers),
            "stratum": ["all"] * pairs,
            "pairs": [pairs] * pairs,
            "sampled": [pairs] * pairs,
            "weight": [1.0] * pairs,
            "shared": [n % SHARED_EVERY == 0 for n in numbers],
        }
    )
    put_sample(run, sample.filter(pa.array([n not in unsure for n in numbers])))
    run.store.write("settings.yaml", yaml.safe_dump(load_settings().model_dump(mode="json")).encode())
    run.store.write("inputs.json", b'{"kind": "benchmark", "docs": "docs", "queries": "queries"}')
    return run


def put_sample(run: Run, sample: pa.Table) -> None:
    """Give a run a sample that stands for its settings, and its near misses."""
    drawing, missing, *_ = steps(run, load_settings())
    run.execute(drawing.plan(run), lambda _, output: output.write("review_sample", sample))
    run.execute(missing.plan(run), missing.execute)


def _put(run: Run, table: str, **columns: object) -> None:
    put(run, table, TABLES[table].rows(columns))


@contextmanager
def opened(run: Run, *, show_judge: bool = False) -> Iterator[ReviewPairs]:
    """The deck of a run."""
    with open_review_pairs(run.tables(*TABLES_READ, JUDGE_TABLE), show_judge=show_judge) as deck:
        yield deck


def turns_of(run: Run, deck: ReviewPairs) -> ReviewSession:
    """The answers of a run so far."""
    return ReviewSession(deck.rows, deck.shared, AnswerJournal(run.store))


@dataclass(frozen=True)
class Page:
    """A page that is served."""

    url: str
    port: int
    run: Run
    pairs: ReviewPairs

    def answers(self) -> pa.Table:
        """The answers on disk."""
        from darklode.pipeline.validate.review.journal import current_answers

        return current_answers(AnswerJournal(self.run.store).read())


@contextmanager
def served(
    run: Run, *, show_judge: bool = False, scale: Scale = BINARY, place: ListenAddress | None = None
) -> Iterator[Page]:
    """The page of a run, on a free port."""
    place = place or ListenAddress("127.0.0.1", 0, ())
    with opened(run, show_judge=show_judge) as deck, listen(place) as bound:
        review = ReviewApp(deck, turns_of(run, deck), scale, Analyzer(), show_judge)
        with serving(review_app(review, TOKEN, place.allowed_hosts), bound):
            yield Page(place.addresses(bound, TOKEN)[0], bound.getsockname()[1], run, deck)


def ask(page: Page, path: str, method: str = "GET", body: object = None, **headers: str) -> Reply:
    """One request; the path is that below the token, or an absolute one."""
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=30)
    try:
        target = path if path.startswith("/") else f"/{TOKEN}/{path}"
        connection.request(method, target, body, {name.replace("_", "-"): value for name, value in headers.items()})
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read().decode()
    finally:
        connection.close()


def post(page: Page, path: str, fields: dict[str, str]) -> Reply:
    """Send a form."""
    form = "application/x-www-form-urlencoded"
    return ask(page, path, "POST", urlencode(fields).encode(), Content_Type=form)
