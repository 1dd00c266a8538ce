"""Judging in units: verdicts of a part of the pool, written and told as they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.artifacts import Output, Unit
from pipeline.corpora import Digest
from pipeline.judges.background import Background
from pipeline.judges.panel import Panel
from pipeline.judges.port import REPLIES, Judge, Live, check_replies
from schemas.tables import PANEL_VERDICTS, VERDICTS

_BASIS = ("tenant", "query_id", "chunk_id", "query_hash", "chunk_hash")


@dataclass
class Told:
    """How many of the pairs were judged, told also in the middle of a unit where the judge says how far it is."""

    output: Output
    total: int
    counts: Counter[str] = field(default_factory=Counter)
    live: Live | None = None
    _before: int = field(default=0, init=False)
    """What the judge had answered when the unit began."""

    def of(self, judge: Judge) -> None:
        """A unit of this judge begins."""
        self.live = getattr(judge, "live", None)
        self._before = self.live.answered if self.live else 0

    def meanwhile(self) -> None:
        """Tell how far the unit is."""
        answered = self.live.answered - self._before if self.live else 0
        self._tell(self.counts.total() + answered)

    def done(self, facts: Mapping[str, int]) -> None:
        """The unit is complete."""
        self.counts.update(facts)
        self._tell(self.counts.total())

    def _tell(self, judged: int) -> None:
        self.output.progress(judged, self.total, self.live.note if self.live else "")


@dataclass(frozen=True)
class Asked:
    """A tenant's judge, and where its verdicts go."""

    judge: Judge
    background: Background
    output: Output
    told: Told

    def unit(self, pairs: pa.Table, name: str) -> Unit:
        """Judge pairs unless that was done before; the facts count relevant, not relevant and unreadable ones."""
        digest, judge_id = Digest(len(_BASIS)), self.judge.judge_id
        digest.update(pairs.select(_BASIS).columns)
        self.told.of(self.judge)
        with self.output.unit(name, f"{judge_id} {digest.hexdigest()}") as unit:
            if not unit.done:
                verdicts = _verdicts(judge_id, pairs, self._replies(pairs))
                self.output.write("verdicts", verdicts)
                unit.facts = _counts(verdicts["relevant"])
        self.told.done(unit.facts)
        return unit

    def _replies(self, pairs: pa.Table) -> pa.Table:
        """The judge's replies; those of a panel's members are written."""
        if not isinstance(self.judge, Panel):
            return self.background.run(self.judge.judge(pairs), self.told.meanwhile)
        each = self.background.run(self.judge.each(pairs), self.told.meanwhile)
        own = [_verdicts(member, pairs, said) for member, said in zip(self.judge.member_ids, each, strict=True)]
        self.output.write("panel_verdicts", pa.concat_tables(own).cast(PANEL_VERDICTS.schema))
        return self.judge.pooled(each)


def _verdicts(judge_id: str, pairs: pa.Table, replies: pa.Table) -> pa.Table:
    check_replies(judge_id, pairs, replies)
    ids = {name: pairs[name] for name in ("tenant", "query_id", "chunk_id")}
    said = {name: replies[name] for name in REPLIES.names}
    return VERDICTS.rows(ids | said | {"judge_id": pa.repeat(judge_id, pairs.num_rows)})


def _counts(relevant: pa.ChunkedArray) -> dict[str, int]:
    yes = pc.sum(relevant.cast(pa.int32()), min_count=0).as_py()
    return {"relevant": yes, "not_relevant": pc.count(relevant).as_py() - yes, "unreadable": relevant.null_count}
