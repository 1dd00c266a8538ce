"""Verdicts on the pool: each candidate goes to the judge with its query."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.artifacts import FunnelStep, Output, Stage, Tables
from pipeline.corpora import TenantChunks, tenants
from pipeline.judges.adaptive.evidence import gather
from pipeline.judges.adaptive.rounds import Rounds
from pipeline.judges.background import Background
from pipeline.judges.pairs import PoolPairs, pair_blocks, pool_pairs
from pipeline.judges.panel import Panel
from pipeline.judges.port import Judge
from pipeline.judges.units import Asked, Told
from schemas.settings import JudgeSettings
from schemas.tables import STOPPING, UNJUDGED

JUDGE = Stage("judge", 3, ("queries", "chunks", "pool"), ("verdicts", "panel_verdicts"))

ADAPTIVE_JUDGE = replace(JUDGE, reads=(*JUDGE.reads, "rankings"), writes=(*JUDGE.writes, UNJUDGED.name, STOPPING.name))
"""The same stage with `judge.depth` adaptive."""

PART_ROWS = 1 << 18


def judge(
    tables: Tables,
    output: Output,
    settings: JudgeSettings,
    *,
    judge_for: Callable[[TenantChunks], Judge],
    seed: int = 0,
) -> None:
    """Write a verdict for every pair that is judged.

    At full depth these are all pairs of the pool, by query_id, then chunk_id; one unit is a block of queries. At
    adaptive depth they come in rounds (see `Rounds`), one unit each; what no round asked for goes to `unjudged`, and
    what is missed, as far as can be told, to `stopping`. A killed run goes on with the next unit, and a unit whose
    pairs did not change is not judged again as long as `judge_id` stands.

    What a panel's members said is written apart.

    Args:
        tables: holds `queries`, `chunks` and `pool`; for adaptive depth `rankings`, too.
        output: takes `verdicts` and `panel_verdicts`; its facts name the judge's kind and ids, a panel's
            members, and count the labels.
        settings: the judge's kind, for the record; depth, recall and random_share.
        judge_for: builds the judge of a tenant from its chunks.
        seed: of the pairs drawn at random at adaptive depth.

    Raises:
        ArtifactError: the pool names a query or chunk that its tenant does not have.
        ValueError: the judge broke its contract: other rows than `REPLIES`, or no label and no error.
    """
    told, judge_ids, members = Told(output, tables.rows("pool")), set[str](), set[str]()
    judges: list[Judge] = []
    with Background() as background:
        for tenant in tenants(tables, "pool"):
            chunks = TenantChunks(tables, tenant)
            asked = Asked(judge_for(chunks), background, output, told)
            judge_ids.add(asked.judge.judge_id)
            members |= set(asked.judge.member_ids) if isinstance(asked.judge, Panel) else set()
            judges += [asked.judge] if asked.judge not in judges else []  # one may serve several tenants
            if settings.depth == "full":
                _all(tables, chunks, asked)
            else:
                _likeliest(tables, chunks, asked, settings, seed)
    _record(output, told.counts, told.total)
    noted = Counter[str]()
    for one in judges:
        noted.update(getattr(one, "facts", {}))
    output.facts |= {"kind": settings.kind, "judge_ids": sorted(judge_ids), **noted}
    if members:
        output.facts["members"] = sorted(members)


def _all(tables: Tables, chunks: TenantChunks, asked: Asked) -> None:
    for pairs in pair_blocks(tables, chunks):
        asked.unit(pairs, f"{chunks.tenant}/{pairs['query_id'][0]}")


def _likeliest(tables: Tables, chunks: TenantChunks, asked: Asked, settings: JudgeSettings, seed: int) -> None:
    with pool_pairs(tables, chunks) as pairs:
        evidence = gather(tables, chunks, pairs)
        rounds = Rounds(evidence, recall=settings.recall, random_share=settings.random_share, seed=seed)
        while len(numbers := rounds.next()):
            unit = asked.unit(pairs.take(numbers), f"{chunks.tenant}/round {rounds.number}")
            rounds.learn(numbers, _labels(asked.output.written(unit, "verdicts")))
        _mark(asked.output, chunks.tenant, pairs, rounds)
    asked.output.write(STOPPING.name, STOPPING.rows({"tenant": [chunks.tenant], **rounds.summary()}))


def _labels(verdicts: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """1, 0, or not a number where the verdict is null."""
    said = pc.fill_null(verdicts["relevant"].cast(pa.float64()), float("nan"))
    return np.asarray(said.to_numpy())


def _mark(output: Output, tenant: str, pairs: PoolPairs, rounds: Rounds) -> None:
    """Write the pairs that were not judged, with what the learner expects of them."""
    left, expected = rounds.unjudged, rounds.probability
    for start in range(0, len(left), PART_ROWS):
        numbers = left[start : start + PART_ROWS]
        ids = pairs.ids(numbers)
        columns = {"tenant": pa.repeat(tenant, len(numbers)), "query_id": ids["query_id"], "chunk_id": ids["chunk_id"]}
        probability = None if expected is None else pa.array(expected[numbers].astype(np.float32))
        output.write(UNJUDGED.name, UNJUDGED.rows(columns | {"probability": probability}))


def _record(output: Output, counts: Counter[str], total: int) -> None:
    left = total - counts.total()
    output.count(
        FunnelStep("judge", "pairs", total, "verdicts", counts.total(), {"left unjudged": left} if left else {})
    )
    output.facts |= {name: counts[name] for name in ("relevant", "not_relevant", "unreadable")}
