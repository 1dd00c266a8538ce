"""The stage `judge`: verdicts on the pool's pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, Unit
from darklode.pipeline.base.artifacts.output import PART_ROWS
from darklode.pipeline.base.chunk_texts import Digest, TenantChunks, tenants
from darklode.pipeline.judge.adaptive.pool_features import gather_evidence
from darklode.pipeline.judge.adaptive.rounds import JudgingRounds
from darklode.pipeline.judge.pairs import PoolPairs, pair_blocks, pool_pairs
from darklode.pipeline.judge.panel import Panel
from darklode.pipeline.judge.port import REPLIES, Judge, check_replies
from darklode.pipeline.judge.session import JudgingSession, judge_facts, label_counts, labels_as_floats
from darklode.schemas.judging import JudgeSettings
from darklode.schemas.label_tables import PANEL_VERDICTS, STOPPING, UNJUDGED, VERDICTS

JUDGE = Stage("judge", 8, ("queries", "chunks", "pool"), ("verdicts", "panel_verdicts"))

ADAPTIVE_JUDGE = replace(
    JUDGE,
    version=JUDGE.version + 2,
    reads=(*JUDGE.reads, "rankings"),
    writes=(*JUDGE.writes, UNJUDGED.name, STOPPING.name),
)
"""The same stage with adaptive judging; another version, because the order of calls differs."""

_FINGERPRINT_COLUMNS = ("tenant", "query_id", "chunk_id", "query_hash", "chunk_hash")


def judge(
    tables: Tables,
    output: Output,
    settings: JudgeSettings,
    *,
    judge_for: Callable[[TenantChunks], Judge],
    seed: int = 0,
) -> None:
    """Write a verdict for every judged pair.

    Full judging covers the pool, one unit per block of queries. Adaptive judging proceeds in rounds (`JudgingRounds`),
    one unit each; unjudged pairs go to `unjudged`, the estimate of missed positives to `stopping`. A killed run resumes
    with the next unit; a unit is judged again only if its pairs or the `judge_id` change.

    Args:
        tables: must contain `queries`, `chunks` and `pool`; for adaptive judging also `rankings`.
        output: receives `verdicts`, and `panel_verdicts` of the members of a panel; its facts name the judge's kind,
            ids and members, and count labels.
        settings: kind, strategy, target_recall and random_share.
        judge_for: builds a tenant's judge.
        seed: random seed of the sample of adaptive judging.

    Raises:
        ArtifactError: the pool has an unknown query or chunk.
        ValueError: replies break the judge's contract (`check_replies`).
    """
    judges: list[Judge] = []
    with JudgingSession(output, tables.rows("pool")) as session:
        for tenant in tenants(tables, "pool"):
            chunks = TenantChunks(tables, tenant)
            pool_judge = PoolJudge(judge_for(chunks), session, output)
            judges.append(pool_judge.judge)
            if settings.strategy == "full":
                _judge_pool(tables, chunks, pool_judge)
            else:
                _judge_in_rounds(tables, chunks, pool_judge, settings, seed)
    _record_counts(output, session.counts, tables.rows("pool"))
    output.facts |= {"kind": settings.kind, **judge_facts(judges)}
    members = {member for judge in judges if isinstance(judge, Panel) for member in judge.member_ids}
    if members:
        output.facts["members"] = sorted(members)


def _judge_pool(tables: Tables, chunks: TenantChunks, judge: PoolJudge) -> None:
    for pairs in pair_blocks(tables, chunks):
        judge.unit(pairs, f"{chunks.tenant}/{pairs['query_id'][0]}")


def _judge_in_rounds(
    tables: Tables, chunks: TenantChunks, judge: PoolJudge, settings: JudgeSettings, seed: int
) -> None:
    with pool_pairs(tables, chunks) as pairs:
        evidence = gather_evidence(tables, chunks, pairs)
        rounds = JudgingRounds(evidence, recall=settings.target_recall, random_share=settings.random_share, seed=seed)
        while len(numbers := rounds.next_pairs()):
            unit = judge.unit(pairs.take(numbers), f"{chunks.tenant}/round {rounds.number}")
            rounds.learn(numbers, labels_as_floats(judge.output.read_unit(unit, "verdicts")["relevant"]))
        _write_unjudged(judge.output, chunks.tenant, pairs, rounds)
    judge.output.write(STOPPING.name, STOPPING.rows({"tenant": [chunks.tenant], **rounds.summary()}))


def _write_unjudged(output: Output, tenant: str, pairs: PoolPairs, rounds: JudgingRounds) -> None:
    """Write the unjudged pairs with their predicted probability."""
    unjudged, expected = rounds.unjudged_pairs, rounds.probability
    for start in range(0, len(unjudged), PART_ROWS):
        numbers = unjudged[start : start + PART_ROWS]
        ids = pairs.ids(numbers)
        columns = {"tenant": pa.repeat(tenant, len(numbers)), "query_id": ids["query_id"], "chunk_id": ids["chunk_id"]}
        probability = None if expected is None else pa.array(expected[numbers].astype(np.float32))
        output.write(UNJUDGED.name, UNJUDGED.rows(columns | {"probability": probability}))


def _record_counts(output: Output, counts: Counter[str], total: int) -> None:
    n_unjudged = total - counts.total()
    output.count(
        FunnelStep("judge", "pairs", total, "verdicts", counts.total(), {"unjudged": n_unjudged} if n_unjudged else {})
    )
    output.facts |= {name: counts[name] for name in ("relevant", "not_relevant", "unreadable")}


@dataclass(frozen=True)
class PoolJudge:
    """A tenant's judge working on its pool."""

    judge: Judge
    session: JudgingSession
    output: Output

    def unit(self, pairs: pa.Table, name: str) -> Unit:
        """Judge pairs unless done before; the facts count relevant, not relevant and unreadable labels."""
        digest, judge_id = Digest(len(_FINGERPRINT_COLUMNS)), self.judge.judge_id
        digest.update(pairs.select(_FINGERPRINT_COLUMNS).columns)
        return self.session.unit(name, f"{judge_id} {digest.hexdigest()}", lambda: self._write(pairs), self.judge)

    def _write(self, pairs: pa.Table) -> Mapping[str, int]:
        verdicts = self._verdicts(pairs)
        self.output.write("verdicts", verdicts)
        return label_counts(verdicts["relevant"])

    def _verdicts(self, pairs: pa.Table) -> pa.Table:
        """Rows of `verdicts`, with the id of the judge that answered; writes those of panel members."""
        if isinstance(self.judge, Panel):
            return _verdict_rows(self.judge.judge_id, pairs, self._panel_replies(pairs))
        replies, judge_ids = self.session.routed_replies(self.judge, pairs)
        return _verdict_rows(judge_ids, pairs, replies)

    def _panel_replies(self, pairs: pa.Table) -> pa.Table:
        """The panel's replies; writes those of its members."""
        assert isinstance(self.judge, Panel)
        member_replies = self.session.run_coroutine(self.judge, self.judge.each(pairs))
        panel_replies = self.judge.combine(member_replies)
        judge_ids = (*self.judge.member_ids, self.judge.judge_id)
        for judge_id, replies in zip(judge_ids, (*member_replies, panel_replies), strict=True):
            check_replies(judge_id, pairs, replies)
        member_verdicts = [
            _verdict_rows(member_id, pairs, replies)
            for member_id, replies in zip(self.judge.member_ids, member_replies, strict=True)
        ]
        self.output.write("panel_verdicts", pa.concat_tables(member_verdicts).cast(PANEL_VERDICTS.schema))
        return panel_replies


def _verdict_rows(judge_id: str | pa.Array, pairs: pa.Table, replies: pa.Table) -> pa.Table:
    ids = {name: pairs[name] for name in ("tenant", "query_id", "chunk_id")}
    columns = {name: replies[name] for name in REPLIES.names}
    judge_ids = pa.repeat(judge_id, pairs.num_rows) if isinstance(judge_id, str) else judge_id
    return VERDICTS.rows(ids | columns | {"judge_id": judge_ids})
