"""The stage that judges the results shown in a sample of the log's searches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.artifacts.database import scratch
from darklode.pipeline.base.chunk_texts import Digest, TenantChunks
from darklode.pipeline.base.relations import view
from darklode.pipeline.evaluate.online_metrics import DEPTHS, SHOWN_DOCUMENTS_SQL
from darklode.pipeline.judge.port import Judge
from darklode.pipeline.judge.session import JudgingSession, label_counts
from darklode.pipeline.mine.evidence import Exposures
from darklode.pipeline.mine.relevance.document_scores import JudgedDocuments
from darklode.pipeline.mine.relevance.ranker import OpenTenant, OpenTenants, Ranker
from darklode.schemas.evaluation_tables import ONLINE_VERDICTS
from darklode.schemas.mining import LogSettings

ONLINE_VERDICTS_STAGE = Stage("online_verdicts", 3, ("impressions", "chunks"), ("online_verdicts",))

DEFAULT_SEARCHES = 50
"""Default number of searches per tenant and variant; the judge reads up to 20 documents of each."""
N_BLOCKS = 8
"""Number of blocks of a tenant's queries. The documents of a block are judged and recorded together."""

# Searches with several variants or none are sampled as if they were one more variant.
DAY_SAMPLE_SQL = f"""{SHOWN_DOCUMENTS_SQL}
    , search_queries AS (
        SELECT tenant, search_id, min(query) AS query FROM {{impressions}} GROUP BY tenant, search_id
    ), searches AS (
        SELECT tenant, search_id, session, CASE WHEN count(DISTINCT variant) = 1 THEN min(variant) END AS variant,
               md5_number_lower(concat_ws(chr(0), $seed, 'shown', tenant, $day, search_id)) AS sample_hash
        FROM shown GROUP BY tenant, search_id, session
    ), sampled_searches AS (
        SELECT * FROM searches
        QUALIFY row_number() OVER (PARTITION BY tenant, variant ORDER BY sample_hash, search_id) <= $n_searches
    )
    SELECT tenant, CAST($day AS DATE) AS date, s.variant, search_id, session, sample_hash, query_id, query, doc_id,
           position
    FROM sampled_searches s JOIN shown USING (tenant, search_id, session)
    JOIN search_queries USING (tenant, search_id)
"""
# The sample of the days so far; `sampled_results` are the registered rows of `DAY_SAMPLE_SQL`. An earlier sample has
# all searches that can be in a later one, because each has at most $n_searches searches with smaller hashes.
MERGED_SAMPLE_SQL = """
    SELECT * FROM sampled_results
    QUALIFY dense_rank() OVER (PARTITION BY tenant, variant ORDER BY sample_hash, date, search_id) <= $n_searches
"""
SAMPLED_RESULTS_SQL = f"""
    SELECT * EXCLUDE (sample_hash, query), md5_number_lower(query_id) % {N_BLOCKS} AS block,
           min(query) OVER query_window AS query, substr(sha256(min(query) OVER query_window), 1, 32) AS query_hash
    FROM sampled_results WHERE position <= {max(DEPTHS)} WINDOW query_window AS (PARTITION BY tenant, query_id)
    ORDER BY tenant, block, query_id, doc_id, date, search_id, position
"""


def online_verdicts(
    tables: Tables,
    output: Output,
    settings: LogSettings,
    *,
    searches: int,
    judge_for: Callable[[TenantChunks], Judge],
    seed: int,
) -> None:
    """Write verdicts on the first documents shown in sampled searches.

    Searches are sampled by hash, so the sample stays the same unless new searches come before. The judge sees each
    query and document once, at most `MAX_JUDGED_CHUNKS` chunks: at most searches × 20 × 16 per tenant and variant. A
    document is relevant if one of its chunks is; null if none is and a reply was unreadable, or if it no longer exists.
    One unit is a block of a tenant's queries.

    Args:
        tables: must contain `impressions` and `chunks`.
        output: receives `online_verdicts`; its facts count labels and judged chunks.
        settings: which users' searches count (bots are left out).
        searches: number of sampled searches per tenant and variant.
        judge_for: builds a tenant's judge.
        seed: random seed of the sample.

    Raises:
        ValueError: replies break the judge's contract (`check_replies`).

    Source: ScalingNote, 4.6.
    """
    rows = _draw_searches(tables, settings, searches, seed)
    keys = ["tenant", "block"]
    blocks = rows.group_by(keys).aggregate([]).sort_by([(key, "ascending") for key in keys]).to_pylist()
    with (
        OpenTenants(tables, Ranker(judge_for, {}, "")) as tenants,
        JudgingSession(output, rows.num_rows, progress_count="shown") as session,
    ):
        for block in blocks:
            open_tenant = tenants.get(block["tenant"])
            in_block = pc.and_(pc.equal(rows["tenant"], block["tenant"]), pc.equal(rows["block"], block["block"]))
            if open_tenant is not None:
                _JudgedBlock(open_tenant, rows.filter(in_block), session, output).judge(
                    f"{block['tenant']}/{block['block']}"
                )
    n_shown = session.counts["shown"]
    n_drawn = rows.num_rows
    dropped = {"its tenant has no documents": n_drawn - n_shown} if n_drawn > n_shown else {}
    output.count(FunnelStep("online_verdicts", "drawn documents", n_drawn, "verdicts", n_shown, dropped))
    output.facts |= {name: session.counts[name] for name in ("shown", "relevant", "not_relevant", "unknown", "chunks")}


def _draw_searches(tables: Tables, settings: LogSettings, searches: int, seed: int) -> pa.Table:
    """Read the documents shown in the sampled searches, in the order of `SAMPLED_RESULTS_SQL`."""
    sample: pa.Table | None = None
    for day, parts in tables.by_day("impressions", "timestamp").items():
        with tables.with_parts("impressions", parts).connect() as connection:
            impressions = view(connection, tables.with_parts("impressions", parts), "impressions")
            people = Exposures.from_impressions(connection, impressions, settings).people
            parameters = {"seed": str(seed), "day": day, "n_searches": searches}
            query = DAY_SAMPLE_SQL.format(impressions=impressions, people=people)
            day_rows = connection.sql(query, params=parameters).to_arrow_table()
        sample = day_rows if sample is None else pa.concat_tables([sample, day_rows])
        with scratch() as connection:
            connection.register("sampled_results", sample)
            sample = connection.sql(MERGED_SAMPLE_SQL, params={"n_searches": searches}).to_arrow_table()
    if sample is None:
        return ONLINE_VERDICTS.empty().append_column("block", pa.array([], pa.int64()))
    with scratch() as connection:
        connection.register("sampled_results", sample)
        rows: pa.Table = connection.sql(SAMPLED_RESULTS_SQL).to_arrow_table()
        return rows


SAMPLE_COLUMNS = ("date", "variant", "search_id", "session", "query_id", "query", "doc_id", "position")
"""Columns that verdicts take from the sampled rows."""


@dataclass(frozen=True)
class _JudgedBlock:
    """A block of shown documents of a tenant.

    Attributes:
        opened: the tenant's chunks and judge.
        rows: shown documents, in the order of `SAMPLED_RESULTS_SQL`.
        session: calls the judge, and counts verdicts.
        output: receives the verdicts.
    """

    opened: OpenTenant
    rows: pa.Table
    session: JudgingSession
    output: Output

    def judge(self, name: str) -> None:
        """Judge the documents, unless they were judged before with the same judge, rows and texts."""
        judge = self.opened.judge
        rows_digest = Digest(len(SAMPLE_COLUMNS))
        texts_digest = Digest(2)
        rows_digest.update([pc.fill_null(self.rows[name].cast(pa.string()), "") for name in SAMPLE_COLUMNS])
        texts_digest.update(self._judged_documents.shown.select(["chunk_id", "chunk_hash"]).columns)
        fingerprint = f"{judge.judge_id} {rows_digest.hexdigest()} {texts_digest.hexdigest()}"
        self.session.unit(name, fingerprint, self._write, judge)

    @cached_property
    def _judged_documents(self) -> JudgedDocuments:
        return JudgedDocuments.from_queries(self.opened, self.rows, self.rows["doc_id"])

    def _write(self) -> Mapping[str, int]:
        """Judge the documents' chunks and write a verdict per document; returns counts for the facts."""
        judge = self.opened.judge
        documents = self._judged_documents
        # Progress counts shown documents, but the judge gets their chunks, so it adds nothing to it.
        replies = self.session.replies(judge, documents.shown, unit_progress=0)
        document_index = pa.array(documents.document_index)
        judge_id = pa.repeat(pa.scalar(judge.judge_id), self.rows.num_rows)
        relevant, probability = (column.take(document_index) for column in documents.label_documents(replies))
        columns = {"relevant": relevant, "probability": probability, "judge_id": judge_id}
        verdicts = ONLINE_VERDICTS.rows({name: self.rows[name] for name in ("tenant", *SAMPLE_COLUMNS)} | columns)
        self.output.write(ONLINE_VERDICTS.name, verdicts)
        labels = label_counts(verdicts["relevant"])
        labels["unknown"] = labels.pop("unreadable")
        return {"shown": verdicts.num_rows, "chunks": documents.shown.num_rows} | labels
