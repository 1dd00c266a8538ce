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
from darklode.pipeline.mine.tiers import MEDIAN_TIER_SHARE, N_HASH_VALUES, SMALL_TIER_SHARE, TIERS, tier_of
from darklode.schemas.mined_tables import MINED_VERDICTS
from darklode.schemas.mining import MiningSettings

VERIFY = Stage("verify", 6, ("mined_pairs", "log_queries", "chunks"), ("mined_verdicts",))

PAIRS_PER_SOURCE_AND_TIER = 100
"""Number of sampled pairs per source and tier if no share is set: more narrow the estimate, and cost more calls."""
MAX_UNIT_PAIRS = 256
"""Maximum number of mined pairs in a unit, if a share is set: an interrupted run judges at most one unit again."""
UNITS_PER_TENANT = 8
"""Number of units of a sample per tenant. Pairs are assigned by a hash of their query, not by day, so a changed pair
changes only one unit.
"""
DOCUMENT_GONE = "document is gone"
"""Reason why a pair has no verdict: its positive has no chunks any more."""

# All tiers that contain a pair, by the smallest one: branches of the CASE over `tier_of`.
_CONTAINING_TIERS_SQL = " ".join(
    f"WHEN '{tier}' THEN {list(TIERS[tier_index:])}" for tier_index, tier in enumerate(TIERS)
)
_HASH_PAIRS_SQL = f"""
    CREATE TEMP TABLE hashed_pairs AS
    SELECT tenant, date, query_id, positive_id, negative_id, source,
           CASE {tier_of("p")} {_CONTAINING_TIERS_SQL} END AS tiers,
           md5_number_lower(concat_ws(chr(0), $seed, 'verify', tenant, query_id, positive_id)) AS hash
    FROM mined_pairs p
"""
_SHARE_SQL = "SELECT * EXCLUDE (hash), CAST(date AS VARCHAR) AS folder FROM hashed_pairs WHERE hash <= $max_hash"
_SAMPLE_SQL = """
    SELECT unnest(pair), list_sort(list(tier)) AS tiers, 'sample' AS folder FROM (
        SELECT tier, unnest(arg_min({
            'tenant': tenant, 'date': date, 'query_id': query_id, 'positive_id': positive_id,
            'negative_id': negative_id, 'source': source
        }, hash, $sample_size)) AS pair
        FROM (SELECT * EXCLUDE (tiers), unnest(tiers) AS tier FROM hashed_pairs) GROUP BY source, tier
    ) GROUP BY pair
"""
_PAIR_COLUMNS = ("query_id", "positive_id", "negative_id", "source", "tiers")
_PAIR_ORDER = "query_id, positive_id, source"
_BLOCK_SQL = {
    "share": f"(row_number() OVER (PARTITION BY tenant, folder ORDER BY {_PAIR_ORDER}) - 1) // {MAX_UNIT_PAIRS}",
    "sample": f"md5_number_lower(query_id) % {UNITS_PER_TENANT}",
}
_SAMPLED_PAIRS_SQL = """
    CREATE TEMP TABLE sampled_pairs AS
    SELECT s.*, text AS query, substr(sha256(text), 1, 32) AS query_hash, {block} AS block
    FROM ({sample}) s LEFT JOIN (SELECT tenant, query_id, text FROM log_queries) USING (tenant, query_id)
"""
_BLOCK_SIZES_SQL = "SELECT tenant, folder, block, count(*) FROM sampled_pairs GROUP BY ALL ORDER BY ALL"
_PAIRS_IN_BLOCK_ORDER_SQL = f"""
    SELECT query_id, positive_id, negative_id, source, tiers, query, query_hash
    FROM sampled_pairs ORDER BY tenant, folder, block, {_PAIR_ORDER}
"""


def verify(
    tables: Tables,
    output: Output,
    settings: MiningSettings,
    *,
    judge_for: Callable[[TenantChunks], Judge],
    seed: int,
) -> None:
    """Write verdicts on the documents of sampled pairs, positives and negatives.

    Without a share, the sample is `PAIRS_PER_SOURCE_AND_TIER` pairs of each source and tier, smallest hashes first, so
    it stays the same every night unless new pairs hash lower; tiers are nested, so the tier `large` represents its
    source. With a share, it is that share of all pairs. A share of 0 writes nothing.

    A document is relevant if one of its first `CHUNKS_SEEN` chunks is, null if none is and a reply was unreadable. A
    pair whose positive no longer exists has no verdict. One unit is a block of a tenant's pairs; it is judged again if
    its pairs, their texts or the judge change.

    Args:
        tables: tables that contain `mined_pairs`, `log_queries` and `chunks`.
        output: receives `mined_verdicts`, and facts that count the labels of positives.
        settings: settings; `verify_share` is the share.
        judge_for: builds a tenant's judge.
        seed: seed of the sample and of the tiers.

    Raises:
        ArtifactError: a pair has an unknown query.
        ValueError: replies break the judge's contract (`check_replies`).
    """
    if settings.verify_share == 0:
        return
    judge_only = Ranker(judge_for, {}, "")  # nothing is retrieved: the pairs are given
    with OpenTenants(tables, judge_only) as tenants, tables.connect() as connection:
        blocks, n_pairs = _sample_pairs(connection, settings, seed)
        with JudgingSession(output, n_pairs) as session:
            for tenant, name, pairs in blocks:
                opened = tenants.get(tenant)
                if opened is None:
                    session.counts[DOCUMENT_GONE] += pairs.num_rows
                else:
                    _PairBlock(opened, pairs, session, output).judge(name)
    counts = session.counts
    lost = {DOCUMENT_GONE: counts[DOCUMENT_GONE]} if counts[DOCUMENT_GONE] else {}
    output.count(FunnelStep("verify", "drawn pairs", n_pairs, "verdicts", n_pairs - counts[DOCUMENT_GONE], lost))
    output.facts |= {label: counts[label] for label in ("relevant", "not_relevant", "unreadable")}


def _sample_pairs(
    connection: duckdb.DuckDBPyConnection, settings: MiningSettings, seed: int
) -> tuple[Iterator[tuple[str, str, pa.Table]], int]:
    """Sample the pairs to judge.

    Returns:
        Blocks of pairs as (tenant, name of the unit, pairs), by tenant; and the total number of pairs.
    """
    tiers = {"small": SMALL_TIER_SHARE, "median": MEDIAN_TIER_SHARE, "n_hashes": N_HASH_VALUES}
    connection.execute(_HASH_PAIRS_SQL, {"seed": str(seed)} | tiers)
    if settings.verify_share is None:
        connection.execute(
            _SAMPLED_PAIRS_SQL.format(sample=_SAMPLE_SQL, block=_BLOCK_SQL["sample"]),
            {"sample_size": PAIRS_PER_SOURCE_AND_TIER},
        )
    else:
        max_hash = math.ceil(settings.verify_share * N_HASH_VALUES) - 1
        connection.execute(
            _SAMPLED_PAIRS_SQL.format(sample=_SHARE_SQL, block=_BLOCK_SQL["share"]), {"max_hash": max_hash}
        )
    blocks = connection.sql(_BLOCK_SIZES_SQL).fetchall()
    sizes = [size for *_, size in blocks]
    pairs_of_blocks = _split_by_sizes(connection.sql(_PAIRS_IN_BLOCK_ORDER_SQL).to_arrow_reader(1 << 13), sizes)
    unit_names = ((tenant, f"{tenant}/{folder}/{number}") for tenant, folder, number, _ in blocks)
    named_blocks = ((tenant, name, pairs) for (tenant, name), pairs in zip(unit_names, pairs_of_blocks, strict=True))
    return named_blocks, sum(sizes)


@dataclass(frozen=True)
class _PairBlock:
    """A block of a tenant's sampled pairs; it is judged and written as one unit.

    Attributes:
        opened: the tenant.
        pairs: query_id, positive_id, negative_id, source, tiers, query, query_hash.
        session: runs the judge.
        output: receives the verdicts.
    """

    opened: OpenTenant
    pairs: pa.Table
    session: JudgingSession
    output: Output

    def judge(self, name: str) -> None:
        """Judge the pairs and write their verdicts, or reuse the earlier verdicts of an unchanged unit."""
        judge = self.opened.judge
        pair_columns = {column: self.pairs[column] for column in _PAIR_COLUMNS}
        pair_columns["tiers"] = pc.binary_join(pair_columns["tiers"], " ")
        pair_columns["negative_id"] = pc.fill_null(pair_columns["negative_id"], "")
        shown = self._judged_documents.shown
        pairs_digest = Digest(len(_PAIR_COLUMNS))
        pairs_digest.update(list(pair_columns.values()))
        texts_digest = Digest(4)
        texts_digest.update(shown.select(["query_id", "chunk_id", "query_hash", "chunk_hash"]).columns)
        unit_fingerprint = f"{judge.judge_id} {pairs_digest.hexdigest()} {texts_digest.hexdigest()}"
        self.session.unit(name, unit_fingerprint, self._write_verdicts, judge)

    @cached_property
    def _judged_documents(self) -> JudgedDocuments:
        """The documents of all pairs: first the positives, then the negatives."""
        docs = [*self.pairs["positive_id"].chunks, *self.pairs["negative_id"].chunks]
        return JudgedDocuments.from_queries(self.opened, self.pairs, pa.chunked_array(docs))

    def _write_verdicts(self) -> Mapping[str, int]:
        """Judge and write; returns the counts of labels, and of pairs without a verdict."""
        verdicts = self._judge_documents() if self._judged_documents.shown.num_rows else MINED_VERDICTS.empty()
        self.output.write(MINED_VERDICTS.name, verdicts)
        return label_counts(verdicts["relevant"]) | {DOCUMENT_GONE: self.pairs.num_rows - verdicts.num_rows}

    def _judge_documents(self) -> pa.Table:
        """Rows of `mined_verdicts` for the pairs whose positive has chunks."""
        judge = self.opened.judge
        documents = self._judged_documents
        replies = self.session.replies(judge, documents.shown, unit_progress=0)  # progress counts pairs, not chunks
        relevant, probability = documents.label_documents(replies)
        n_pairs = self.pairs.num_rows
        positive_index = pa.array(documents.document_index[:n_pairs])
        negative_index = pa.array(documents.document_index[n_pairs:])
        constants = {"tenant": self.opened.chunks.tenant, "judge_id": judge.judge_id}
        columns = {column: pa.repeat(pa.scalar(value, pa.string()), n_pairs) for column, value in constants.items()}
        columns |= {column: self.pairs[column] for column in _PAIR_COLUMNS}
        columns |= {
            "relevant": relevant.take(positive_index),
            "probability": probability.take(positive_index),
            "negative_relevant": relevant.take(negative_index),
            "negative_probability": probability.take(negative_index),
        }
        has_positive = pa.array(documents.is_read).take(positive_index)
        return MINED_VERDICTS.rows(columns).filter(has_positive)


def _split_by_sizes(reader: pa.RecordBatchReader, sizes: list[int]) -> Iterator[pa.Table]:
    """Split a reader's rows into tables of the given sizes, which must add up to its number of rows."""
    remainder = reader.schema.empty_table()
    for size in sizes:
        pieces = [remainder]
        while sum(piece.num_rows for piece in pieces) < size:
            pieces.append(pa.Table.from_batches([reader.read_next_batch()]))
        joined = pa.concat_tables(pieces).combine_chunks()
        yield joined.slice(0, size)
        remainder = joined.slice(size)
