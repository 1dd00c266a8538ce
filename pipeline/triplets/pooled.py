"""The stage `triplets`: training triplets, each a query, one of its positives, and hard negatives of the query.

The stage is a chain of SQL statements on temporary tables, each explained above it, in the order of `make_triplets`.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, key_of
from darklode.pipeline.base.artifacts.tables import scratch
from darklode.pipeline.base.chunk_texts import TEXT_FORMS_SQL
from darklode.pipeline.base.doubtful_labels import LIKELIHOOD_SQL
from darklode.pipeline.base.sharding import Pieces, Spread, here
from darklode.schemas.settings import TextForm, TripletSettings
from darklode.schemas.tables import TRIPLETS

TRIPLETS_STAGE = Stage("triplets", 10, ("queries", "chunks", "rankings", "pool", "verdicts", "qrels"), ("triplets",))

SPLITS = ("train", "validation")
BLOCK_ROWS = 4096  # triplets whose texts are joined at a time; bounds the memory that texts take

_QUERY_TABLES = ("rankings", "pool", "verdicts", "qrels")  # tables whose rows belong to a query

SHARD_QUERIES = 1024
"""Minimum number of queries in a shard: each shard reads all tables, so small shards cost more than they save."""

# A shard's view of the tables: its contiguous share of the queries, and the texts that they may need.
SHARD_QUERIES_SQL = """
    CREATE TEMP TABLE shard_queries AS SELECT tenant, query_id FROM (
        SELECT tenant, query_id, ntile($shards) OVER (ORDER BY split, tenant, query_id) AS shard
        FROM queries WHERE split <> 'test'
    ) WHERE shard = $shard
"""
SHARD_VIEW_SQL = "CREATE VIEW {table} AS SELECT * FROM every_{table} SEMI JOIN shard_queries USING (tenant, query_id)"
NEEDED_CHUNKS_SQL = """
    CREATE TEMP TABLE needed_chunks AS
    SELECT tenant, chunk_id FROM pool UNION SELECT tenant, chunk_id FROM rankings
    UNION SELECT tenant, chunk_id FROM every_qrels WHERE relevance > 0
"""
CHUNKS_VIEW_SQL = "CREATE VIEW chunks AS SELECT * FROM every_chunks SEMI JOIN needed_chunks USING (tenant, chunk_id)"

# Chunks with the same `text_hash` have the same text, and count as one.
TEXTS_SQL = "CREATE TEMP TABLE texts AS SELECT tenant, chunk_id, doc_id, sha256(text) AS text_hash FROM chunks"

# Positives of test queries are excluded from train and validation, those of validation queries from train.
HELD_OUT_TEXTS_SQL = """
    CREATE TEMP TABLE held_out_texts AS
    SELECT tenant, text_hash, bool_or(split = 'test') AS in_test, bool_or(split = 'validation') AS in_validation
    FROM every_qrels JOIN queries USING (tenant, query_id) JOIN texts USING (tenant, chunk_id)
    WHERE $apart AND relevance > 0 GROUP BY tenant, text_hash
"""

# `min_probability` applies to judge labels with a probability, or marked as doubtful; human labels, and labels without
# a probability, pass.
LABELLED_CHUNKS_SQL = f"""
    CREATE TEMP TABLE labelled_chunks AS
    SELECT tenant, query_id, chunk_id, text_hash, split, fused_score, source, relevance, probability,
           source <> 'human' AND coalesce({LIKELIHOOD_SQL} < CAST($min_probability AS FLOAT), false) AS unlikely,
           coalesce(in_test OR (split = 'train' AND in_validation), false) AS held_out
    FROM qrels JOIN pool USING (tenant, query_id, chunk_id) JOIN queries USING (tenant, query_id)
    JOIN texts USING (tenant, chunk_id) LEFT JOIN verdicts USING (tenant, query_id, chunk_id)
    LEFT JOIN held_out_texts USING (tenant, text_hash)
    WHERE split <> 'test'
"""

# One row per relevant text: duplicates share one label, human before judge, relevant before not relevant.
RELEVANT_TEXTS_SQL = """
    CREATE TEMP TABLE relevant_texts AS
    WITH distinct_texts AS (
        SELECT * FROM labelled_chunks QUALIFY row_number() OVER (
            PARTITION BY tenant, query_id, text_hash
            ORDER BY source, relevance = 0, unlikely, relevance DESC, probability DESC NULLS LAST, fused_score DESC,
                     chunk_id
        ) = 1
    )
    SELECT *, row_number() OVER (
        PARTITION BY tenant, query_id, unlikely OR held_out
        ORDER BY source, relevance DESC, probability DESC NULLS LAST, fused_score DESC, chunk_id
    ) AS positive_rank FROM distinct_texts WHERE relevance > 0
"""

# Letters and digits outside Markdown headings and links; a CJK character counts as three letters.
HEADINGS_AND_LINKS = r"(?m)^[ \t]*#{1,6}[ \t].*$|!?\[[^\]]*\]\([^)]*\)|https?://\S+"
NOT_CJK = r"[^\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]"
SHORT_TEXTS_SQL = rf"""
    CREATE TEMP TABLE short_texts AS
    WITH contents AS (
        SELECT tenant, query_id, chunk_id, regexp_replace(text, '{HEADINGS_AND_LINKS}', ' ', 'g') AS content
        FROM relevant_texts JOIN chunks USING (tenant, chunk_id)
        WHERE NOT unlikely AND NOT held_out AND source <> 'human'
    )
    SELECT tenant, query_id, chunk_id FROM contents
    WHERE length(regexp_replace(content, '[^\pL\pN]', '', 'g'))
          + 2 * length(regexp_replace(content, '{NOT_CJK}', '', 'g')) < $min_letters
"""

# Positive-aware mining (NV-Retriever): an unjudged chunk is a negative only if its score is below the ceiling.
POSITIVES_SQL = """
    CREATE TEMP TABLE positives AS
    SELECT tenant, query_id, chunk_id AS positive_id, split, fused_score AS positive_score,
           fused_score - abs(fused_score) * CAST($margin AS DOUBLE) AS ceiling
    FROM relevant_texts ANTI JOIN short_texts USING (tenant, query_id, chunk_id) WHERE NOT unlikely AND NOT held_out
    QUALIFY $max_positives = 0
        OR row_number() OVER (PARTITION BY tenant, query_id ORDER BY positive_rank) <= $max_positives
"""

# Documents with a chunk relevant to the query: their other chunks often answer it too, so they are no negatives.
RELEVANT_DOCUMENTS_SQL = """
    CREATE TEMP TABLE relevant_documents AS
    SELECT DISTINCT tenant, query_id, doc_id FROM pool JOIN texts USING (tenant, chunk_id)
    SEMI JOIN relevant_texts USING (tenant, query_id, text_hash) WHERE NOT $same_document
"""

# Only chunks judged not relevant; never unreadable or unjudged ones. Duplicates of a relevant text are excluded, and
# each text is a negative once.
JUDGED_NEGATIVES_SQL = """
    CREATE TEMP TABLE judged_negatives AS
    WITH candidates AS (
        SELECT tenant, query_id, chunk_id, text_hash, fused_score AS score
        FROM qrels JOIN pool USING (tenant, query_id, chunk_id) JOIN texts USING (tenant, chunk_id)
        SEMI JOIN positives USING (tenant, query_id)
        ANTI JOIN relevant_texts USING (tenant, query_id, text_hash)
        ANTI JOIN relevant_documents USING (tenant, query_id, doc_id)
        WHERE relevance = 0
        QUALIFY row_number() OVER (PARTITION BY tenant, query_id, text_hash ORDER BY fused_score DESC, chunk_id) = 1
    )
    SELECT *, row_number() OVER (PARTITION BY tenant, query_id ORDER BY score DESC, chunk_id) AS negative_rank
    FROM candidates QUALIFY negative_rank <= $negatives
"""

# From beyond the pool, only for queries with too few judged negatives. Duplicates of an unlabelled pool member are
# excluded, since they may be relevant.
MINED_CANDIDATES_SQL = """
    CREATE TEMP TABLE mined_candidates AS
    WITH short_queries AS (
        SELECT tenant, query_id, $negatives - count(judged_negatives.chunk_id) AS n_missing
        FROM (SELECT DISTINCT tenant, query_id FROM positives) LEFT JOIN judged_negatives USING (tenant, query_id)
        GROUP BY tenant, query_id HAVING n_missing > 0
    ), beyond_pool AS (
        SELECT tenant, query_id, chunk_id, CAST(sum(CAST(1.0 / (60 + rank) AS DECIMAL(18, 12))) AS FLOAT) AS score
        FROM rankings SEMI JOIN short_queries USING (tenant, query_id) ANTI JOIN pool USING (tenant, query_id, chunk_id)
        GROUP BY tenant, query_id, chunk_id
    ), unlabelled AS (
        SELECT tenant, query_id, text_hash
        FROM pool JOIN texts USING (tenant, chunk_id)
        SEMI JOIN short_queries USING (tenant, query_id) ANTI JOIN qrels USING (tenant, query_id, chunk_id)
    ), candidates AS (
        SELECT tenant, query_id, chunk_id, score
        FROM beyond_pool JOIN texts USING (tenant, chunk_id)
        ANTI JOIN unlabelled USING (tenant, query_id, text_hash)
        ANTI JOIN relevant_texts USING (tenant, query_id, text_hash)
        ANTI JOIN relevant_documents USING (tenant, query_id, doc_id)
        ANTI JOIN judged_negatives AS taken USING (tenant, query_id, text_hash)
        QUALIFY row_number() OVER (PARTITION BY tenant, query_id, text_hash ORDER BY score DESC, chunk_id) = 1
    )
    SELECT *, row_number() OVER (PARTITION BY tenant, query_id ORDER BY score DESC, chunk_id) AS negative_rank
    FROM candidates JOIN short_queries USING (tenant, query_id)
"""

# A query's mined chunks are numbered by descending score, so those below a ceiling are contiguous from `first_rank` on.
NEGATIVES_SQL = """
    CREATE TEMP TABLE negatives AS
    WITH score_steps AS (
        SELECT tenant, query_id, n_missing, CAST(score AS DOUBLE) AS score, min(negative_rank) AS first_rank
        FROM mined_candidates GROUP BY tenant, query_id, n_missing, score
    ), mined_ranks AS (
        SELECT p.tenant, p.query_id, p.positive_id,
               unnest(range(s.first_rank, s.first_rank + s.n_missing)) AS negative_rank
        FROM positives p ASOF JOIN score_steps s
          ON s.tenant = p.tenant AND s.query_id = p.query_id AND p.ceiling > s.score
    )
    SELECT tenant, query_id, positive_id, chunk_id, score, negative_rank
    FROM positives JOIN judged_negatives USING (tenant, query_id)
    UNION ALL
    SELECT tenant, query_id, positive_id, chunk_id, score, $negatives + negative_rank
    FROM mined_ranks JOIN mined_candidates USING (tenant, query_id, negative_rank)
"""

# Each positive with its list of negatives, numbered in output order.
NUMBERED_TRIPLETS_SQL = """
    CREATE TEMP TABLE numbered_triplets AS
    WITH lists AS (
        SELECT tenant, query_id, positive_id,
               list(chunk_id ORDER BY negative_rank) AS negative_ids,
               list(score ORDER BY negative_rank) AS negative_scores
        FROM negatives GROUP BY tenant, query_id, positive_id
    )
    SELECT tenant, query_id, positive_id, positive_score, split,
           coalesce(negative_ids, []) AS negative_ids, coalesce(negative_scores, []) AS negative_scores,
           row_number() OVER (ORDER BY split, tenant, query_id, positive_score DESC, positive_id) - 1 AS number
    FROM positives LEFT JOIN lists USING (tenant, query_id, positive_id)
"""

# Reasons why positives make no triplet, read by `_funnel_step`. `copies` share the text of another positive of their
# query; `overruled` ones have a text that people labelled as not relevant.
COUNT_LEFT_OUT_SQL = """
    WITH labelled_positives AS (FROM labelled_chunks WHERE relevance > 0),
    overruled AS (FROM labelled_positives ANTI JOIN relevant_texts USING (tenant, query_id, text_hash)),
    counts AS (
        SELECT count(*) AS texts, count(*) FILTER (unlikely) AS unlikely,
               count(*) FILTER (held_out AND NOT unlikely) AS held
        FROM relevant_texts
    )
    SELECT p.n AS total, o.n AS overruled, p.n - o.n - c.texts AS copies, c.unlikely, c.held,
           (SELECT count(*) FROM short_texts) AS bare
    FROM counts c, (SELECT count(*) AS n FROM labelled_positives) p, (SELECT count(*) AS n FROM overruled) o
"""

# Rows of `triplets` with their texts, for a range of numbers.
TRIPLETS_OF_BLOCK_SQL = """
    WITH block AS (SELECT * FROM numbered_triplets WHERE number >= $first AND number < $first + $rows),
    negatives AS (
        SELECT number, list({passage} ORDER BY rank) AS negatives
        FROM (SELECT number, tenant, unnest(negative_ids) AS chunk_id, generate_subscripts(negative_ids, 1) AS rank
              FROM block)
        JOIN chunks USING (tenant, chunk_id) GROUP BY number
    )
    SELECT substr(sha256(concat_ws(chr(0), b.tenant, b.query_id, b.positive_id, CAST($source AS VARCHAR))), 1, 24)
               AS triplet_id, b.tenant, b.query_id, q.text AS query, b.positive_id, {positive} AS positive,
           b.negative_ids, coalesce(n.negatives, []) AS negatives, b.positive_score, b.negative_scores,
           CAST($source AS VARCHAR) AS source, b.split
    FROM block b
    JOIN queries q ON q.tenant = b.tenant AND q.query_id = b.query_id
    JOIN chunks c ON c.tenant = b.tenant AND c.chunk_id = b.positive_id
    LEFT JOIN negatives n USING (number)
    ORDER BY number
"""


@dataclass(frozen=True)
class TripletShard:
    """One shard of the stage's work: a contiguous share of the queries, in the order of the triplets.

    Attributes:
        tables: the run's tables.
        settings: settings of `triplets`.
        apart: whether positives of held-out queries are excluded (see `triplets`).
        source: value of the column `source`.
        shard: number of this shard, from 1.
        shards: number of shards.
    """

    tables: Tables
    settings: TripletSettings
    apart: bool
    source: str
    shard: int
    shards: int

    @property
    def name(self) -> str:
        """Name for progress messages."""
        return f"triplets {self.shard} of {self.shards}"

    @property
    def folder(self) -> str:
        """Folder of the shard's result; its name is a hash of everything that can change the result."""
        table_contents = [self.tables.content(table) for table in TRIPLETS_STAGE.reads]
        parameters = (self.settings.model_dump(mode="json"), self.apart, self.source, self.shard, self.shards)
        return f"progress/{TRIPLETS_STAGE.name}/{key_of(TRIPLETS_STAGE.version, table_contents, *parameters)}"


def triplets(
    tables: Tables,
    output: Output,
    settings: TripletSettings,
    *,
    apart: bool,
    source: str = "pooled",
    spread: Spread = here,
) -> None:
    """Write one triplet per sufficiently likely positive of a train or validation query.

    Chunks with the same text share a label and make one positive. Positives in order: human labels, then grade,
    probability and fused score; at most `max_positives` per query. Positives below `min_probability` or doubted by the
    judge (`LIKELIHOOD_SQL`), and texts with fewer than `min_letters` letters and digits, are dropped unless labelled by
    people. With `apart`, positives that answer a test query and, in training, a validation query are dropped, too.

    Negatives, hardest first: pool members judged not relevant; then chunks beyond the pool whose fused score is below
    s⁺ − |s⁺|·`relative_margin`, where s⁺ is the positive's. None is from a document with a relevant chunk, unless
    `allow_same_document_negatives` is set. Dropped rows and shortfalls are counted; nothing is filled with random text.
    Scores are fused retrieval scores on one scale.

    Args:
        tables: the tables that `TRIPLETS_STAGE` reads.
        output: receives `triplets`, in one part per split.
        settings: settings of `triplets`.
        apart: whether positives of held-out queries are dropped, so that no split trains on another's positives.
        source: value of the column `source`.
        spread: runs the shards, here or on several workers; results come in shard order.

    Source: DevRev-Search, A.4 (16 hard negatives); NV-Retriever (Moreira et al. 2024), TopK-PercPos.
    """
    shards = max(1, min(spread.places, tables.rows("queries") // SHARD_QUERIES))
    shard_tasks = [TripletShard(tables, settings, apart, source, number, shards) for number in range(1, shards + 1)]
    counts = Counter[str]()
    n_written = 0
    with output.packed_writer("triplets", *SPLITS) as write_part:
        for block in _count_pieces(spread(make_triplets, shard_tasks), counts):
            rows = TRIPLETS.rows(dict(zip(block.column_names, block.columns, strict=True)))
            for split in SPLITS:
                write_part(rows.filter(pc.equal(rows["split"], split)), split)
            n_written += rows.num_rows
            output.progress(n_written, counts["rows"] if shards == 1 else None)
    output.count(_funnel_step(counts))
    output.facts["short_of_negatives"] = counts["short"]


def make_triplets(share: TripletShard) -> Pieces:
    """Yield a row of counts (`COUNT_LEFT_OUT_SQL`, rows, rows short of negatives), then the shard's triplets,
    `BLOCK_ROWS` at a time.
    """
    settings = share.settings
    negatives_limit = {"negatives": settings.num_negatives}
    with _open_shard(share) as connection:
        connection.execute(TEXTS_SQL)
        connection.execute(HELD_OUT_TEXTS_SQL, {"apart": share.apart})
        connection.execute(LABELLED_CHUNKS_SQL, {"min_probability": settings.min_probability})
        connection.execute(RELEVANT_TEXTS_SQL)
        connection.execute(SHORT_TEXTS_SQL, {"min_letters": settings.min_letters})
        connection.execute(POSITIVES_SQL, {"margin": settings.relative_margin, "max_positives": settings.max_positives})
        connection.execute(RELEVANT_DOCUMENTS_SQL, {"same_document": settings.allow_same_document_negatives})
        for statement in (JUDGED_NEGATIVES_SQL, MINED_CANDIDATES_SQL, NEGATIVES_SQL):
            connection.execute(statement, negatives_limit)
        connection.execute(NUMBERED_TRIPLETS_SQL)
        n_rows, n_short = _count_triplets(connection, settings.num_negatives)
        left_out: pa.Table = connection.sql(COUNT_LEFT_OUT_SQL).to_arrow_table()
        yield left_out.append_column("rows", [[n_rows]]).append_column("short", [[n_short]])
        yield from _triplets_with_texts(connection, n_rows, share.source, settings.text_form)


@contextmanager
def _open_shard(share: TripletShard) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection with the shard's views of the tables; `every_qrels` always holds the labels of all queries."""
    with scratch() as connection:
        share.tables.view(connection, "queries", "queries")
        if share.shards == 1:
            for table in ("chunks", *_QUERY_TABLES):
                share.tables.view(connection, table, table)
            share.tables.view(connection, "every_qrels", "qrels")
        else:
            _restrict_views(connection, share)
        yield connection


def _restrict_views(connection: duckdb.DuckDBPyConnection, share: TripletShard) -> None:
    """Restrict the views to the shard's queries and the chunks they may need; other tables become `every_…`."""
    for table in ("chunks", *_QUERY_TABLES):
        share.tables.view(connection, f"every_{table}", table)
    connection.execute(SHARD_QUERIES_SQL, {"shard": share.shard, "shards": share.shards})
    for table in _QUERY_TABLES:
        connection.execute(SHARD_VIEW_SQL.format(table=table))
    connection.execute(NEEDED_CHUNKS_SQL)
    connection.execute(CHUNKS_VIEW_SQL)


def _count_pieces(results: Iterator[Pieces], counts: Counter[str]) -> Iterator[pa.Table]:
    """Yield the triplets of all shards, shard after shard, and add up the shards' rows of counts in `counts`."""
    for pieces in results:
        counts.update(next(pieces).to_pylist()[0])
        yield from pieces


def _funnel_step(counts: Counter[str]) -> FunnelStep:
    """Build the funnel step: positives in, triplets out, and the reasons why the others were dropped."""
    names = ("total", "unlikely", "held", "copies", "overruled", "bare", "rows")
    total, unlikely, held_out, copies, overruled, bare, rows = (counts[name] for name in names)
    dropped = {
        "less likely than triplets.min_probability": unlikely,
        "beyond triplets.max_positives": total - unlikely - held_out - copies - overruled - bare - rows,
    }
    dropped |= {"shorter than triplets.min_letters": bare} if bare else {}
    dropped |= {"positive of a held-out query": held_out} if held_out else {}
    dropped |= {"same text as another positive of the query": copies} if copies else {}
    dropped |= {"people labelled the same text not relevant": overruled} if overruled else {}
    return FunnelStep("triplets", "positives of train and validation", total, "triplets", rows, dropped)


def _count_triplets(connection: duckdb.DuckDBPyConnection, n_negatives: int) -> tuple[int, int]:
    """Count the triplets, and those of them with fewer than `n_negatives` negatives."""
    count_sql = "SELECT count(*), count(*) FILTER (len(negative_ids) < $n_negatives) FROM numbered_triplets"
    totals = connection.sql(count_sql, params={"n_negatives": n_negatives}).fetchall()
    return int(totals[0][0]), int(totals[0][1])


def _triplets_with_texts(
    connection: duckdb.DuckDBPyConnection, rows: int, source: str, form: TextForm
) -> Iterator[pa.Table]:
    """Yield the shard's triplets with their texts in this form, `BLOCK_ROWS` rows at a time."""
    passage, positive = (TEXT_FORMS_SQL[form].format(of=chunk) for chunk in ("", "c."))
    query = TRIPLETS_OF_BLOCK_SQL.format(passage=passage, positive=positive)
    for first in range(0, rows, BLOCK_ROWS):
        parameters = {"first": first, "rows": BLOCK_ROWS, "source": source}
        yield connection.sql(query, params=parameters).to_arrow_table()
