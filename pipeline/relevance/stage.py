"""The stage that ranks documents for each query of the log, day by day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from pipeline.artifacts import FunnelStep, Output, Stage, Tables, key_of
from pipeline.judges.background import Background
from pipeline.judges.port import Judge
from pipeline.relevance.day import NO_CANDIDATE, NO_DOCUMENTS, NO_POSITIVE, DayRanker
from pipeline.relevance.opened import Ranker, Tenants
from schemas.mined_tables import RELEVANCE_EVIDENCE
from schemas.mining import RelevanceSettings

RELEVANCE = Stage("relevance", 1, ("log_queries",), ("relevance_evidence",))
"""It reads `chunks`, too, but as they are frozen for a while: `Ranker.version` names that state."""

PART_ROWS = 1 << 18


def relevance(tables: Tables, output: Output, settings: RelevanceSettings, *, ranker: Ranker, seed: int) -> None:
    """Write each query's best document by the ranker, and one drawn from between the top K and the top T.

    Each retriever names its T best documents by their best chunks. The judge sees these chunks, and a document is
    worth its best chunk's probability (1 or 0 by the label where a reply has none). Equals go by fused retrieval
    score, then doc_id. A document whose replies cannot be read has no rank, and a query where none has a probability
    above 0 has no row. The ranker `none` writes nothing.

    One unit is a day of `log_queries`: what a night adds is done, the rest stands as long as the day's queries
    and `Ranker.version` do, whatever became of the documents. A tenant is opened once for all days where memory allows
    (`OPEN_CHUNKS`); besides, memory follows a day's queries.

    Args:
        tables: holds `log_queries`, in parts of one day each, and `chunks`.
        output: takes `relevance_evidence`, by day, tenant and query_id; its facts count positives without a negative.
        settings: ranker, K and T.
        ranker: its retrievers name the candidates, its judge scores them.
        seed: of the draws.

    Raises:
        ValueError: the judge broke its contract, see `check_replies`.

    Source: ScalingNote, 4.1.
    """
    if settings.ranker == "none":
        return
    told = _Told(output, tables.rows("log_queries"))
    with Tenants(tables, ranker) as tenants, Background() as background, tables.connect() as connection:
        by_day = DayRanker(tenants, background, connection, settings, seed, told.now)
        for day, parts in tables.by_day("log_queries").items():
            with output.unit(day, key_of(sorted(part.sha256 for part in parts), ranker.version)) as unit:
                if not unit.done:
                    counts = Counter[str]()
                    rows = pa.concat_tables(tables.part(part) for part in parts)
                    _write(output, by_day.evidence(rows, counts))
                    unit.facts = dict(counts)
            told.done(unit.facts)
        _record(output, told.counts, tenants.judges)


@dataclass
class _Told:
    """How many of the queries are done."""

    output: Output
    total: int
    counts: Counter[str] = field(default_factory=Counter)

    def done(self, facts: Mapping[str, int]) -> None:
        self.counts.update(facts)
        self.output.progress(self.counts["queries"], self.total)

    def now(self, of_the_day: int, judge: Judge) -> None:
        live = getattr(judge, "live", None)
        self.output.progress(self.counts["queries"] + of_the_day, self.total, live.note if live else "")


def _write(output: Output, blocks: Iterable[pa.Table]) -> None:
    waiting = RELEVANCE_EVIDENCE.empty()
    for block in blocks:
        waiting = pa.concat_tables([waiting, block])
        if waiting.num_rows >= PART_ROWS:
            output.write(RELEVANCE_EVIDENCE.name, waiting)
            waiting = RELEVANCE_EVIDENCE.empty()
    output.write(RELEVANCE_EVIDENCE.name, waiting)


def _record(output: Output, counts: Counter[str], judges: Iterable[Judge]) -> None:
    lost = {reason: counts[reason] for reason in (NO_DOCUMENTS, NO_CANDIDATE, NO_POSITIVE) if counts[reason]}
    output.count(FunnelStep("relevance", "queries", counts["queries"], "positives", counts["positives"], lost))
    noted = Counter[str]()
    for judge in judges:
        noted.update(getattr(judge, "facts", {}))
    ids = sorted({judge.judge_id for judge in judges})
    output.facts |= {"judge_ids": ids, "without_negative": counts["without_negative"], **noted}
