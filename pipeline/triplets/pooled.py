"""The stage `triplets`: training triplets, each a query, one of its positives, and hard negatives of the query.

The stage is a chain of SQL statements on temporary tables, which `pooled_sql` holds and explains.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, key_of
from darklode.pipeline.base.artifacts.database import scratch
from darklode.pipeline.base.chunk_texts import TEXT_FORMS_SQL
from darklode.pipeline.base.sharding import Pieces, Spread, here
from darklode.pipeline.triplets.pooled_sql import (
    CHUNKS_VIEW_SQL,
    COUNT_LEFT_OUT_SQL,
    HELD_OUT_LABELS_SQL,
    HELD_OUT_TEXTS_SQL,
    JUDGED_NEGATIVES_SQL,
    LABELLED_CHUNKS_SQL,
    LOWEST_SCORES_SQL,
    MINED_CANDIDATES_SQL,
    NEEDED_CHUNKS_SQL,
    NEGATIVES_SQL,
    NUMBERED_TRIPLETS_SQL,
    POSITIVES_SQL,
    RELEVANT_DOCUMENTS_SQL,
    RELEVANT_TEXTS_SQL,
    SHARD_QUERIES_SQL,
    SHARD_VIEW_SQL,
    TEXTS_SQL,
    TRIPLETS_OF_BLOCK_SQL,
    UNLABELLED_SQL,
)
from darklode.schemas.settings import TextForm, TripletSettings
from darklode.schemas.tables import TRIPLETS

TRIPLETS_STAGE = Stage(
    "triplets", 14, ("queries", "chunks", "rankings", "pool", "qrels", "training_labels"), ("triplets",)
)

SPLITS = ("train", "validation")
BLOCK_ROWS = 4096  # triplets whose texts are joined at a time; bounds the memory that texts take

_QUERY_TABLES = ("rankings", "pool", "training_labels")  # tables whose rows belong to a query

SHARD_QUERIES = 1024
"""Minimum number of queries in a shard: each shard reads all tables, so small shards cost more than they save."""


@dataclass(frozen=True)
class TripletShard:
    """One shard of the stage's work: a contiguous share of the queries, in the order of the triplets.

    Attributes:
        tables: the run's tables.
        settings: settings of `triplets`.
        apart: whether positives of held-out queries are excluded (see `triplets`).
        is_judged: whether a judge was asked about the pool (see `triplets`).
        source: value of the column `source`.
        shard: number of this shard, from 1.
        shards: number of shards.
    """

    tables: Tables
    settings: TripletSettings
    apart: bool
    is_judged: bool
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
        parameters = (
            self.settings.model_dump(mode="json"),
            self.apart,
            self.is_judged,
            self.source,
            self.shard,
            self.shards,
        )
        return f"progress/{TRIPLETS_STAGE.name}/{key_of(TRIPLETS_STAGE.version, table_contents, *parameters)}"


def triplets(  # noqa: PLR0913 (each is part of the fingerprint, except the last)
    tables: Tables,
    output: Output,
    settings: TripletSettings,
    *,
    apart: bool,
    is_judged: bool = True,
    source: str = "pooled",
    spread: Spread = here,
) -> None:
    """Write one triplet per positive of a train or validation query.

    Chunks with the same text share a label and make one positive. Positives in order: human labels, then grade,
    probability and fused score; at most `max_positives` per query. Uncertain positives are dropped, except the best of
    a query that has no other. With `apart`, positives that answer a test query and, in training, a
    validation query are dropped, too.

    Negatives, hardest first: pool members judged not relevant; then chunks beyond the pool whose fused score is below
    s⁺ − |s⁺|·`relative_margin`, where s⁺ is the positive's. None is from a document with a relevant chunk, unless
    `allow_same_document_negatives` is set. Dropped rows and shortfalls are counted; nothing is filled with random text.
    Scores are fused retrieval scores on one scale.

    Args:
        tables: the tables that `TRIPLETS_STAGE` reads.
        output: receives `triplets`, in one part per split.
        settings: settings of `triplets`.
        apart: whether positives of held-out queries are dropped, so that no split trains on another's positives.
        is_judged: whether a judge was asked about the pool. If not, all labels are given ones, and unlabelled members
            of the pool are possible negatives, like chunks beyond the pool.
        source: value of the column `source`.
        spread: runs the shards, here or on several workers; results come in shard order.

    Source: DevRev-Search, A.4 (16 hard negatives); NV-Retriever (Moreira et al. 2024), TopK-PercPos.
    """
    shards = max(1, min(spread.places, tables.rows("queries") // SHARD_QUERIES))
    shard_tasks = [
        TripletShard(tables, settings, apart, is_judged, source, number, shards) for number in range(1, shards + 1)
    ]
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
        connection.execute(LABELLED_CHUNKS_SQL)
        connection.execute(RELEVANT_TEXTS_SQL)
        connection.execute(LOWEST_SCORES_SQL)
        connection.execute(UNLABELLED_SQL, {"is_judged": share.is_judged})
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
    """Open a connection with the shard's views of the tables; `held_out_labels` always has those of all queries."""
    with scratch() as connection:
        for name, table in {"queries": "queries", "qrels": "qrels", "every_training_labels": "training_labels"}.items():
            share.tables.view(connection, name, table)
        connection.execute(HELD_OUT_LABELS_SQL)
        if share.shards == 1:
            for table in ("chunks", *_QUERY_TABLES):
                share.tables.view(connection, table, table)
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
    names = ("total", "unlikely", "held", "copies", "overruled", "rows")
    total, unlikely, held_out, copies, overruled, rows = (counts[name] for name in names)
    dropped = {
        "uncertain by labels.training_precision": unlikely,
        "beyond triplets.max_positives": total - unlikely - held_out - copies - overruled - rows,
    }
    dropped |= {"positive of a held-out query": held_out} if held_out else {}
    dropped |= {"same text as another positive of the query": copies} if copies else {}
    dropped |= {"people labelled the same text not relevant": overruled} if overruled else {}
    return FunnelStep("triplets", "possible positives of train and validation", total, "triplets", rows, dropped)


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
