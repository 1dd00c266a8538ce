"""Labels for the pool: each candidate goes to the judge with its query."""

from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.artifacts import FunnelStep, Output, Stage, Tables
from pipeline.corpora import Digest, TenantChunks, tenants
from pipeline.judges.background import Background
from pipeline.judges.pairs import pair_blocks
from pipeline.judges.port import REPLIES, Judge, Live
from schemas.settings import JudgeSettings
from schemas.tables import QRELS, VERDICTS

JUDGE = Stage("judge", 2, ("queries", "chunks", "pool"), ("verdicts", "qrels"))

_BASIS = ("tenant", "query_id", "chunk_id", "query_hash", "chunk_hash")


def judge(
    tables: Tables, output: Output, settings: JudgeSettings, *, judge_for: Callable[[TenantChunks], Judge]
) -> None:
    """Write a verdict for every pair of the pool, and a relevance for every verdict that could be read.

    One unit per block of queries: a killed run goes on with the next block, and a block whose pairs did not change is
    not judged again as long as `judge_id` stands. A relevant pair's relevance is the judge's grade, 1 where it gives
    none; any other's is 0, whatever its grade; a verdict that is null has none.

    Args:
        tables: holds `queries`, `chunks` and `pool`.
        output: takes `verdicts` and `qrels`; its facts name the judge's kind and ids and count the labels.
        settings: the judge's kind, for the record.
        judge_for: builds the judge of a tenant from its chunks.

    Raises:
        ArtifactError: the pool names a query or chunk that its tenant does not have.
        ValueError: the judge broke its contract: other rows than `REPLIES`, or no label and no error.
    """
    counts, judge_ids, total = Counter[str](), set(), tables.rows("pool")
    judges: list[Judge] = []
    with Background() as background:
        for tenant in tenants(tables, "pool"):
            chunks = TenantChunks(tables, tenant)
            asked = judge_for(chunks)
            judge_ids.add(asked.judge_id)
            judges += [asked] if asked not in judges else []  # one may serve several tenants
            for pairs in pair_blocks(tables, chunks):
                tell = _Teller(output, asked, counts.total(), total)
                counts.update(_judge_block(output, asked, pairs, background, tell))
                output.progress(counts.total(), total, tell.note)
    _record(output, counts)
    noted = Counter[str]()
    for one in judges:
        noted.update(getattr(one, "facts", {}))
    output.facts |= {"kind": settings.kind, "judge_ids": sorted(judge_ids), **noted}


class _Teller:
    """Tells of a block that takes long, where the judge says how far it is."""

    def __init__(self, output: Output, asked: Judge, before: int, total: int) -> None:
        self._output, self._before, self._total = output, before, total
        self._live: Live | None = getattr(asked, "live", None)
        self._start = self._live.answered if self._live else 0

    @property
    def note(self) -> str:
        """What the judge says of itself."""
        return self._live.note if self._live else ""

    def __call__(self) -> None:
        answered = self._live.answered - self._start if self._live else 0
        self._output.progress(self._before + answered, self._total, self.note)


def _judge_block(
    output: Output, asked: Judge, pairs: pa.Table, background: Background, tell: Callable[[], None]
) -> dict[str, int]:
    """Judge a block unless that was done before; how many pairs are relevant, not relevant and unreadable."""
    digest = Digest(len(_BASIS))
    digest.update(pairs.select(_BASIS).columns)
    with output.unit(f"{pairs['tenant'][0]}/{pairs['query_id'][0]}", f"{asked.judge_id} {digest.hexdigest()}") as unit:
        if not unit.done:
            verdicts = _verdicts(asked.judge_id, pairs, background.run(asked.judge(pairs), tell))
            output.write("verdicts", verdicts)
            output.write("qrels", _qrels(verdicts))
            unit.facts = _counts(verdicts["relevant"])
        return unit.facts


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
