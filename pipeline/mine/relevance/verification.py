"""The stage `verify`: judge both documents of a sample of the mined pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.chunk_texts import Digest, TenantChunks
from darklode.pipeline.judge.port import Judge
from darklode.pipeline.judge.session import JudgingSession, label_counts
from darklode.pipeline.mine.relevance.document_scores import JudgedDocuments
from darklode.pipeline.mine.relevance.ranker import OpenTenant, OpenTenants, Ranker
from darklode.pipeline.mine.tiers import LOTS, MEDIAN_TIER_SHARE, SMALL_TIER_SHARE, TIERS, tier_of
from darklode.schemas.mined_tables import MINED_VERDICTS
from darklode.schemas.mining import MiningSettings

VERIFY = Stage("verify", 6, ("mined_pairs", "log_queries", "chunks"), ("mined_verdicts",))

DRAWN = 100
"""Number of pairs per source and tier if no share is set."""
BLOCK = 256
"""Maximum number of mined pairs in a unit."""
BUCKETS = 8
"""Number of units of a sample, across days."""
GONE = "document is gone"

_NESTED = " ".join(f"WHEN '{tier}' THEN {list(TIERS[tier_index:])}" for tier_index, tier in enumerate(TIERS))
_PAIRS = f"""
    CREATE TEMP TABLE lots AS
    SELECT tenant, date, query_id, positive_id, negative_id, source, CASE {tier_of("p")} {_NESTED} END AS tiers,
           md5_number_lower(concat_ws(chr(0), $seed, 'verify', tenant, query_id, positive_id)) AS lot
    FROM mined_pairs p
"""
_SHARE = "SELECT * EXCLUDE (lot), CAST(date AS VARCHAR) AS folder FROM lots WHERE lot <= $last"
_SAMPLE = """
    SELECT unnest(pair), list_sort(list(tier)) AS tiers, 'sample' AS folder FROM (
        SELECT tier, unnest(arg_min({
            'tenant': tenant, 'date': date, 'query_id': query_id, 'positive_id': positive_id,
            'negative_id': negative_id, 'source': source
        }, lot, $most)) AS pair
        FROM (SELECT * EXCLUDE (tiers), unnest(tiers) AS tier FROM lots) GROUP BY source, tier
    ) GROUP BY pair
"""
_ORDER = "query_id, positive_id, source"
_BLOCK = {
    "share": f"(row_number() OVER (PARTITION BY tenant, folder ORDER BY {_ORDER}) - 1) // {BLOCK}",
    "sample": f"md5_number_lower(query_id) % {BUCKETS}",
}
_CHOSEN = """
    CREATE TEMP TABLE chosen AS
    SELECT d.*, text AS query, substr(sha256(text), 1, 32) AS query_hash, {block} AS block
    FROM ({drawn}) d LEFT JOIN (SELECT tenant, query_id, text FROM log_queries) USING (tenant, query_id)
"""
_BLOCKS = "SELECT tenant, folder, block, count(*) FROM chosen GROUP BY ALL ORDER BY ALL"
_ROWS = f"""
    SELECT query_id, positive_id, negative_id, source, tiers, query, query_hash
    FROM chosen ORDER BY tenant, folder, block, {_ORDER}
"""


def verify(
    tables: Tables,
    output: Output,
    settings: MiningSettings,
    *,
    judge_for: Callable[[TenantChunks], Judge],
    seed: int,
) -> None:
    """Write verdicts on the documents of sampled pairs.

    Without a share, the sample is `DRAWN` pairs of each source and tier, smallest hashes first, so it stays the same
    every night unless new pairs hash lower; tiers are nested, so the tier `large` represents its source. With a share,
    it is that share of all pairs. A share of 0 writes nothing.

    A document is relevant if one of its first `CHUNKS_SEEN` chunks is, null if none is and a reply was unreadable. A
    pair whose positive no longer exists has no verdict. One unit is a block of a tenant's pairs; it is judged again if
    its pairs, their texts or the judge change.

    Args:
        tables: holds `mined_pairs`, `log_queries` and `chunks`.
        output: `mined_verdicts`; its facts count the labels of positives.
        settings: the share.
        judge_for: builds a tenant's judge.
        seed: of the sample and the tiers.

    Raises:
        ArtifactError: a pair has an unknown query.
        ValueError: replies break the judge's contract (`check_replies`).
    """
    if settings.verify_share == 0:
        return
    with OpenTenants(tables, Ranker(judge_for, {}, "")) as tenants, tables.connect() as db:
        blocks, total = _drawn_pairs(db, settings, seed)
        with JudgingSession(output, total) as session:
            for tenant, name, pairs in blocks:
                opened = tenants.get(tenant)
                if opened is None:
                    session.counts[GONE] += pairs.num_rows
                else:
                    _DrawnBlock(opened, pairs, session, output).judge(name)
    counts = session.counts
    lost = {GONE: counts[GONE]} if counts[GONE] else {}
    output.count(FunnelStep("verify", "drawn pairs", total, "verdicts", total - counts[GONE], lost))
    output.facts |= {name: counts[name] for name in ("relevant", "not_relevant", "unreadable")}


def _drawn_pairs(
    connection: duckdb.DuckDBPyConnection, settings: MiningSettings, seed: int
) -> tuple[Iterator[tuple[str, str, pa.Table]], int]:
    """Blocks of sampled pairs (tenant, name, pairs), and the number of pairs."""
    tiers = {"small": SMALL_TIER_SHARE, "median": MEDIAN_TIER_SHARE, "lots": LOTS}
    connection.execute(_PAIRS, {"seed": str(seed)} | tiers)
    if settings.verify_share is None:
        connection.execute(_CHOSEN.format(drawn=_SAMPLE, block=_BLOCK["sample"]), {"most": DRAWN})
    else:
        last = math.ceil(settings.verify_share * LOTS) - 1
        connection.execute(_CHOSEN.format(drawn=_SHARE, block=_BLOCK["share"]), {"last": last})
    blocks = connection.sql(_BLOCKS).fetchall()
    rows = _in_sizes(connection.sql(_ROWS).to_arrow_reader(1 << 13), [size for *_, size in blocks])
    block_names = ((tenant, f"{tenant}/{folder}/{number}") for tenant, folder, number, _ in blocks)
    named_pairs = ((tenant, name, pairs) for (tenant, name), pairs in zip(block_names, rows, strict=True))
    return named_pairs, sum(size for *_, size in blocks)


@dataclass(frozen=True)
class _DrawnBlock:
    """A block of a tenant's sampled pairs, and the output of its verdicts."""

    opened: OpenTenant
    drawn: pa.Table
    session: JudgingSession
    output: Output

    def judge(self, name: str) -> None:
        """Judge the pairs, or reuse their unit."""
        judge, pairs, texts = self.opened.judge, Digest(5), Digest(4)
        drawn = {name: self.drawn[name] for name in ("query_id", "positive_id", "negative_id", "source", "tiers")}
        drawn |= {"tiers": pc.binary_join(drawn["tiers"], " "), "negative_id": pc.fill_null(drawn["negative_id"], "")}
        pairs.update(list(drawn.values()))
        texts.update(self._judged_documents.shown.select(["query_id", "chunk_id", "query_hash", "chunk_hash"]).columns)
        basis = f"{judge.judge_id} {pairs.hexdigest()} {texts.hexdigest()}"
        self.session.unit(name, basis, self._write, judge)

    @cached_property
    def _judged_documents(self) -> JudgedDocuments:
        docs = [*self.drawn["positive_id"].chunks, *self.drawn["negative_id"].chunks]
        return JudgedDocuments.from_queries(self.opened, self.drawn, pa.chunked_array(docs))

    def _write(self) -> Mapping[str, int]:
        verdicts = self._verdicts() if self._judged_documents.shown.num_rows else MINED_VERDICTS.empty()
        self.output.write(MINED_VERDICTS.name, verdicts)
        return label_counts(verdicts["relevant"]) | {GONE: self.drawn.num_rows - verdicts.num_rows}

    def _verdicts(self) -> pa.Table:
        judge, documents = self.opened.judge, self._judged_documents
        replies = self.session.replies(judge, documents.shown, unit_progress=0)  # progress counts pairs, not chunks
        relevant, probability = documents.label_documents(replies)
        pairs = self.drawn.num_rows
        positive, negative = (
            pa.array(half) for half in (documents.document_index[:pairs], documents.document_index[pairs:])
        )
        columns = {"relevant": relevant.take(positive), "probability": probability.take(positive)}
        columns |= {"negative_relevant": relevant.take(negative), "negative_probability": probability.take(negative)}
        own = ("query_id", "positive_id", "negative_id", "source", "tiers")
        names = {"tenant": self.opened.chunks.tenant, "judge_id": judge.judge_id}
        repeated = {name: pa.repeat(pa.scalar(value, pa.string()), pairs) for name, value in names.items()}
        rows = MINED_VERDICTS.rows({**repeated, **{name: self.drawn[name] for name in own}, **columns})
        return rows.filter(pa.array(documents.is_read).take(positive))


def _in_sizes(reader: pa.RecordBatchReader, sizes: list[int]) -> Iterator[pa.Table]:
    """A reader's rows in tables of the given sizes."""
    remainder = reader.schema.empty_table()
    for size in sizes:
        pieces = [remainder]
        while sum(piece.num_rows for piece in pieces) < size:
            pieces.append(pa.Table.from_batches([reader.read_next_batch()]))
        joined = pa.concat_tables(pieces).combine_chunks()
        yield joined.slice(0, size)
        remainder = joined.slice(size)
