"""Labels for the pool: each candidate goes to the judge with its query."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.artifacts import FunnelStep, Output, Stage, Tables
from pipeline.corpora import Digest, TenantChunks, tenants
from pipeline.judges.pairs import pair_blocks
from pipeline.judges.panel import Panel
from pipeline.judges.port import REPLIES, Judge
from schemas.settings import JudgeSettings
from schemas.tables import PANEL_VERDICTS, QRELS, VERDICTS

JUDGE = Stage("judge", 2, ("queries", "chunks", "pool"), ("verdicts", "panel_verdicts", "qrels"))

_BASIS = ("tenant", "query_id", "chunk_id", "query_hash", "chunk_hash")


def judge(
    tables: Tables, output: Output, settings: JudgeSettings, *, judge_for: Callable[[TenantChunks], Judge]
) -> None:
    """Write a verdict for every pair of the pool, and a relevance for every verdict that could be read.

    One unit per block of queries: a killed run goes on with the next block, and a block whose pairs did not change is
    not judged again as long as `judge_id` stands. A relevant pair's relevance is the judge's grade, 1 where it gives
    none; any other's is 0, whatever its grade; a verdict that is null has none. A panel's members are written apart.

    Args:
        tables: holds `queries`, `chunks` and `pool`.
        output: takes `verdicts`, `panel_verdicts` and `qrels`; its facts name the judge's kind and ids, a panel's
            members, and count the labels.
        settings: the judge's kind, for the record.
        judge_for: builds the judge of a tenant from its chunks.

    Raises:
        ArtifactError: the pool names a query or chunk that its tenant does not have.
        ValueError: the judge broke its contract: other rows than `REPLIES`, or no label and no error.
    """
    counts, total = Counter[str](), tables.rows("pool")
    judge_ids, members = set[str](), set[str]()
    judges: list[Judge] = []
    with asyncio.Runner() as runner:  # one loop for all blocks, so that a judge can keep its connections
        for tenant in tenants(tables, "pool"):
            chunks = TenantChunks(tables, tenant)
            asked = judge_for(chunks)
            judge_ids.add(asked.judge_id)
            members |= set(asked.member_ids) if isinstance(asked, Panel) else set()
            judges += [asked] if asked not in judges else []  # one may serve several tenants
            for pairs in pair_blocks(tables, chunks):
                counts.update(_judge_block(output, asked, pairs, runner))
                output.progress(counts.total(), total)
    _record(output, counts)
    noted = Counter[str]()
    for one in judges:
        noted.update(getattr(one, "facts", {}))
    output.facts |= {"kind": settings.kind, "judge_ids": sorted(judge_ids), **noted}
    if members:
        output.facts["members"] = sorted(members)


def _judge_block(output: Output, asked: Judge, pairs: pa.Table, runner: asyncio.Runner) -> dict[str, int]:
    """Judge a block unless that was done before; how many pairs are relevant, not relevant and unreadable."""
    digest = Digest(len(_BASIS))
    digest.update(pairs.select(_BASIS).columns)
    with output.unit(f"{pairs['tenant'][0]}/{pairs['query_id'][0]}", f"{asked.judge_id} {digest.hexdigest()}") as unit:
        if not unit.done:
            verdicts = _verdicts(asked.judge_id, pairs, _replies(output, asked, pairs, runner))
            output.write("verdicts", verdicts)
            output.write("qrels", _qrels(verdicts))
            unit.facts = _counts(verdicts["relevant"])
        return unit.facts


def _replies(output: Output, asked: Judge, pairs: pa.Table, runner: asyncio.Runner) -> pa.Table:
    """The judge's replies; those of a panel's members are written."""
    if not isinstance(asked, Panel):
        return runner.run(asked.judge(pairs))
    each = runner.run(asked.each(pairs))
    own = [_verdicts(member, pairs, said) for member, said in zip(asked.member_ids, each, strict=True)]
    output.write("panel_verdicts", pa.concat_tables(own).cast(PANEL_VERDICTS.schema))
    return asked.pooled(each)


def _verdicts(judge_id: str, pairs: pa.Table, replies: pa.Table) -> pa.Table:
    if replies.num_rows != pairs.num_rows or not replies.schema.equals(REPLIES):
        raise ValueError(f"{judge_id}: {replies.num_rows} replies to {pairs.num_rows} pairs, schema {replies.schema}")
    silent = pc.and_(pc.is_null(replies["relevant"]), pc.is_null(replies["error"]))
    if pc.any(silent).as_py():
        raise ValueError(f"{judge_id}: a reply without a label must say why in `error`")
    ids = {name: pairs[name] for name in ("tenant", "query_id", "chunk_id")}
    said = {name: replies[name] for name in REPLIES.names}
    return VERDICTS.rows(ids | said | {"judge_id": pa.repeat(judge_id, pairs.num_rows)})


def _qrels(verdicts: pa.Table) -> pa.Table:
    read = verdicts.filter(pc.is_valid(verdicts["relevant"]))
    grade = pc.max_element_wise(pc.coalesce(read["grade"], pa.scalar(1, pa.int32())), pa.scalar(1, pa.int32()))
    relevance = pc.if_else(read["relevant"], grade, pa.scalar(0, pa.int32()))
    return QRELS.rows({name: read[name] for name in QRELS.key} | {"relevance": relevance})


def _counts(relevant: pa.ChunkedArray) -> dict[str, int]:
    yes = pc.sum(relevant.cast(pa.int32()), min_count=0).as_py()
    return {"relevant": yes, "not_relevant": pc.count(relevant).as_py() - yes, "unreadable": relevant.null_count}


def _record(output: Output, counts: Counter[str]) -> None:
    unreadable = counts["unreadable"]
    dropped = {"unreadable reply": unreadable} if unreadable else {}
    output.count(FunnelStep("judge", "pairs", counts.total(), "labels", counts.total() - unreadable, dropped))
    output.facts |= {name: counts[name] for name in ("relevant", "not_relevant", "unreadable")}
