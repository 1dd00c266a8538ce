"""Lending between queries.

Simulated sessions (`session_log`) over four labelled collections, in two runs each. Clicks are as informative as in the
TREC Session Track 2013, where .207 of the documents shown and .403 of the clicked ones are relevant. A quarter of the
sessions' topics follow another topic in the same session. Truth is the collection's labels: two queries are rightly
associated if they have a topic in common; a lent positive, and a drawn negative, is relevant if it is labelled for a
topic of the borrower. Unlabelled documents count as not relevant.

The guard and its threshold are chosen with one collection left out: of all candidates whose lent positives are at least
as often relevant as clicked documents on the other three, the one with most relevant lent positives. The second part
measures click models on repeated searches for the collections' own queries.

    python -m benchmarks.lending [--quick] [--only COLLECTION ...] [--collections FOLDER]
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.click_models import measure_click_models
from benchmarks.collections_io import options, present, read_collection
from benchmarks.mined_log import SimulatedRun
from benchmarks.report import ResultTable, publish
from benchmarks.session_log import TREC_NOISE, SessionLog, simulate
from darklode.pipeline.mine.multi_hop import LendingRules
from darklode.schemas.mining import AssociateSettings, ClickSettings

SEEDS = (0, 1)
MAX_LENDERS = AssociateSettings().max_lenders_per_query


@dataclass(frozen=True, order=True)
class Guard:
    """A candidate of what is lent.

    Attributes:
        terms: rule of the click associations, `paper` or `guarded`.
        th_click: their threshold.
        sessions: whether consecutive queries of a session are associated.
        documents: whether a document must be in the borrower's upper results or have two lenders.
    """

    terms: str
    th_click: float
    sessions: bool
    documents: bool

    def __str__(self) -> str:
        parts = [f"{self.terms} {self.th_click}", *["sessions"] * self.sessions, *["documents"] * self.documents]
        return " + ".join(parts)


GUARDS = [Guard(*values) for values in product(("paper", "guarded"), (0.4, 0.5, 0.6), (False, True), (False, True))]
PAPER = Guard("paper", 0.5, sessions=False, documents=False)
DEFAULT = Guard("guarded", AssociateSettings().th_click, sessions=True, documents=True)


@dataclass(frozen=True)
class Share:
    """Relevant ones of a number of items; shares of several runs add up."""

    relevant: int = 0
    total: int = 0

    def __add__(self, other: Share) -> Share:
        return Share(self.relevant + other.relevant, self.total + other.total)

    @property
    def value(self) -> float:
        return self.relevant / self.total if self.total else 0.0


@dataclass(frozen=True)
class Figures:
    """What a guard gave on a log.

    Attributes:
        associations: associations, and those with a common topic.
        clicked: documents clicked for the query itself.
        lent: lent positives.
        one_hop: negatives drawn for own positives.
        multi_hop: negatives of lent positives.
    """

    associations: Share = Share()
    clicked: Share = Share()
    lent: Share = Share()
    one_hop: Share = Share()
    multi_hop: Share = Share()

    def __add__(self, other: Figures) -> Figures:
        fields = ("associations", "clicked", "lent", "one_hop", "multi_hop")
        return Figures(*(getattr(self, name) + getattr(other, name) for name in fields))


def impressions_relevant(log: SessionLog) -> Share:
    """Relevant documents among those shown, each once for a query."""
    shown = log.impressions.group_by(["query_id", "doc_id"]).aggregate([])  # query ids are normal forms
    return _relevant(log, shown["query_id"], shown["doc_id"])


def _relevant(log: SessionLog, texts: pa.ChunkedArray, doc_ids: pa.ChunkedArray) -> Share:
    pairs = [(text, doc) for text, doc in zip(texts.to_pylist(), doc_ids.to_pylist(), strict=True) if doc is not None]
    return Share(sum(int(doc) in log.relevant[text] for text, doc in pairs), len(pairs))


def measure(run: SimulatedRun, guard: Guard, negatives: str = "lower_half") -> Figures:
    """Associate, pair and compare with the truth."""
    log = run.log
    associations = run.associations(AssociateSettings(rule="guarded", th_click=guard.th_click))
    is_session = pc.equal(associations["kind"], "session")
    of_sessions = associations.filter(is_session)
    by_terms = run.associations(AssociateSettings(rule=guard.terms, th_click=guard.th_click))
    by_terms = by_terms.filter(pc.equal(by_terms["kind"], "click"))
    chosen = pa.concat_tables([by_terms, *([of_sessions] if guard.sessions else [])])
    rules = LendingRules(MAX_LENDERS, "strongest", guarded=guard.documents)
    pairs = run.pairs(chosen, rules, ClickSettings(negatives=negatives))
    lenders = zip(chosen["query_id"].to_pylist(), chosen["associated_query_id"].to_pylist(), strict=True)
    unique = {(run.texts[borrower], run.texts[lender]) for borrower, lender in lenders}
    common = sum(bool(log.topics[borrower] & log.topics[lender]) for borrower, lender in unique)
    own, lent = (pairs.filter(pc.equal(pairs["source"], f"click_{hop}_hop")) for hop in ("one", "multi"))
    shares = [
        _relevant(log, pa.chunked_array([[run.texts[query] for query in rows["query_id"].to_pylist()]]), rows[column])
        for column in ("positive_id", "negative_id")
        for rows in (own, lent)
    ]
    return Figures(Share(common, len(unique)), *shares)


Results = Mapping[str, Mapping[Guard, Figures]]


def choose(results: Results, without: str) -> Guard:
    """The guard with most relevant lent positives on the other collections, as precise as clicks there."""
    sums = {
        guard: sum((figures[guard] for name, figures in results.items() if name != without), Figures())
        for guard in GUARDS
    }
    precise = {guard: sums[guard] for guard in GUARDS if sums[guard].lent.value >= sums[guard].clicked.value}
    candidates = precise or {max(sums, key=lambda guard: sums[guard].lent.value): Figures()}
    return max(candidates, key=lambda guard: candidates[guard].lent.relevant)


def tables(results: Results, exposed: Mapping[str, Figures], shown: Mapping[str, Share]) -> list[ResultTable]:
    """The result tables."""
    columns = {"collection": "", "rule": "", "associations": ",d", "right": ".3f", "lent": ",d", "relevant": ".3f"}
    rows: list[Sequence[object]] = []
    for name, figures in results.items():
        clicked = figures[PAPER].clicked
        rows.append([name, "clicked only", None, None, clicked.total, clicked.value])
        rules = {"paper": PAPER, "guarded (default)": DEFAULT}
        if len(results) > 1:
            rules["chosen without it"] = choose(results, name)
        for label, guard in rules.items():
            found = figures[guard]
            associated = [found.associations.total, found.associations.value]
            rows.append([name, f"{label}: {guard}", *associated, found.lent.total, found.lent.value])
    note = "`right`: share of the associated queries with a common topic; `relevant`: share of the positives."
    lending = ResultTable("Associated queries and lent positives", columns, rows, note)
    columns = {"collection": "", "all shown": ".3f"}
    columns |= {f"{hop}, {kind}": ".3f" for kind in ("paper", "default") for hop in ("one-hop", "multi-hop")}
    rows = [
        [name, shown[name].value, *(share.value for of in pair for share in (of.one_hop, of.multi_hop))]
        for name, figures in results.items()
        for pair in [(exposed[name], figures[DEFAULT])]
    ]
    note = (
        "Share of the drawn negatives that are relevant; `paper`: `associate.rule: paper` and `click.negatives: "
        "exposed`."
    )
    return [lending, ResultTable("Relevant documents among the negatives", columns, rows, note)]


def main() -> None:
    """Measure, print and save."""
    arguments = options(__doc__).parse_args()
    names = present(["cisi"] if arguments.quick else arguments.only, arguments.collections)
    results: dict[str, dict[Guard, Figures]] = {}
    exposed: dict[str, Figures] = {}
    shown: dict[str, Share] = {}
    collections = {name: read_collection(name, arguments.collections) for name in names}
    for name, collection in collections.items():
        results[name] = dict.fromkeys(GUARDS, Figures())
        exposed[name], shown[name] = Figures(), Share()
        for seed in SEEDS[:1] if arguments.quick else SEEDS:
            log = simulate(collection, seed, TREC_NOISE)
            shown[name] += impressions_relevant(log)
            with tempfile.TemporaryDirectory() as folder:
                run = SimulatedRun(folder, log)
                for guard in GUARDS:
                    results[name][guard] += measure(run, guard)
                exposed[name] += measure(run, PAPER, "exposed")
    clicks = measure_click_models(collections, quick=arguments.quick)
    publish("lending", [*tables(results, exposed, shown), *clicks], quick=arguments.quick)


if __name__ == "__main__":
    main()
