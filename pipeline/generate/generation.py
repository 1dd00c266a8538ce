"""The stage `written_queries`: generate one query per text, in resumable units."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, groupby
from operator import itemgetter

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, key_of
from darklode.pipeline.base.errors import LimitReached
from darklode.pipeline.base.sharding import Pieces, Spread, count_shards, here, split_evenly
from darklode.pipeline.generate.port import ID_PREFIX, INPUT_SCHEMA, OUTPUT_SCHEMA, QueryWriter
from darklode.schemas.generation_tables import GENERATION_TEXTS, REAL_QUERIES, WRITTEN_QUERIES

WRITE_STAGE = Stage("written_queries", 1, ("chunks", GENERATION_TEXTS.name, REAL_QUERIES.name), (WRITTEN_QUERIES.name,))

TEXTS_PER_UNIT = 256
"""Maximum number of texts per unit of work."""

Block = tuple[str, int, int]
"""A unit of work: tenant, and the range of its texts (first row, end row), in the order of PASSAGES_SQL."""

ReportProgress = Callable[[int], None]

PASSAGES_SQL = """
    SELECT tenant, chunk_id, title, heading, text, md5_number_lower(concat($2, ' ', chunk_id)) AS draw
    FROM generation_texts JOIN chunks USING (tenant, chunk_id) WHERE tenant = $1 ORDER BY chunk_id
"""

EXAMPLES_SQL = "SELECT text FROM real_queries WHERE tenant = $1 AND split = 'train' ORDER BY query_id"


@dataclass(frozen=True)
class WritingShard:
    """Blocks of texts, and the writer that generates their queries.

    Attributes:
        tables: `chunks`, `generation_texts` and `real_queries`.
        writer: generates queries.
        seed: seed of each text's random number, which chooses its few-shot examples.
        blocks: the blocks, in order.
        basis: fingerprint of all inputs; rows generated from other inputs are not reused.
    """

    tables: Tables
    writer: QueryWriter
    seed: int
    blocks: tuple[Block, ...]
    basis: str

    @property
    def name(self) -> str:
        """Description for progress and logs."""
        tenant, first, _ = self.blocks[0]
        return f"generate queries for {tenant} from text {first} and {len(self.blocks) - 1} more blocks"

    @property
    def folder(self) -> str:
        """Folder of the shard's results in the run, which depends on its inputs."""
        return f"progress/{WRITE_STAGE.name}/{key_of(self.basis, self.blocks)}"


def write_queries(tables: Tables, output: Output, writer: QueryWriter, spread: Spread = here, *, seed: int) -> None:
    """Generate one query per text, one unit per block of texts; finished units are not generated again.

    Few-shot examples are train queries only, so held-out queries do not leak.

    Args:
        tables: `chunks`, `generation_texts` and `real_queries`.
        output: `written_queries`; its fact `generator_id` identifies the writer.
        writer: generates queries.
        spread: runs shards; for a writer with a cache, shards only fill the cache.
        seed: seed of each text's random number, which chooses its few-shot examples.
    """
    basis = key_of(writer.generator_id, seed, *(tables.content(name) for name in WRITE_STAGE.reads))
    blocks = _blocks(tables)
    total = tables.rows(GENERATION_TEXTS.name)
    done = Counter[str]()
    missing = tuple(text_block for text_block in blocks if not output.is_done(_unit_name(text_block), basis))

    def report_progress(n_texts: int) -> None:
        output.progress(done["texts"] + n_texts, total, str(writer.counters or ""))

    pieces = _pieces(WritingShard(tables, writer, seed, missing, output.unit_key("", basis)), spread, report_progress)
    for block in blocks:
        with output.unit(_unit_name(block), basis) as unit:
            if not unit.done:
                output.write(WRITTEN_QUERIES.name, next(pieces))
        done["texts"] += block[2] - block[1]
        report_progress(0)
    output.facts["generator_id"] = writer.generator_id
    no_query = output.current_tables(WRITTEN_QUERIES.name).sql(
        "SELECT count(*) AS n FROM written_queries WHERE text IS NULL"
    )
    n_without_query = no_query["n"][0].as_py()
    drop_counts = {"no query": n_without_query} if n_without_query else {}
    output.count(
        FunnelStep(
            WRITE_STAGE.name, "texts to write for", total, "queries", total - sum(drop_counts.values()), drop_counts
        )
    )


def _pieces(whole_shard: WritingShard, spread: Spread, report_progress: ReportProgress) -> Iterator[pa.Table]:
    """Yield the rows of `written_queries` of each block, generated here or by `spread`.

    For a writer with a cache, shards fill the cache first; the rows are then generated here from the cache.
    """
    if spread is here or not whole_shard.blocks:
        return generate_shard(whole_shard, report_progress)
    if not whole_shard.writer.has_cache:
        return chain.from_iterable(spread(generate_shard, _shards(whole_shard, spread.places)))
    n_texts = 0
    for pieces in spread(fill_cache, _shards(whole_shard, spread.places)):
        for piece in pieces:
            n_texts += piece["texts"][0].as_py()
            report_progress(n_texts)
    return generate_shard(whole_shard, report_progress)


def generate_shard(shard: WritingShard, report_progress: ReportProgress = lambda _n_texts: None) -> Pieces:
    """Generate a shard's queries; yields rows of `written_queries`, a table for each block."""
    for tenant, tenant_blocks in groupby(shard.blocks, itemgetter(0)):
        passages = shard.tables.sql(PASSAGES_SQL, [tenant, str(shard.seed)])
        examples = shard.tables.sql(EXAMPLES_SQL, [tenant])["text"].to_pylist()
        for _, first, end in tenant_blocks:
            block = passages.slice(first, end - first).select(INPUT_SCHEMA.names).cast(INPUT_SCHEMA)
            yield _rows(block, shard.writer.write(block, examples, report_progress), shard.writer.generator_id)


def fill_cache(shard: WritingShard) -> Pieces:
    """Generate a shard's queries into the writer's cache; yields the number of texts, nothing if its budget ran out."""
    try:
        n_texts = sum(rows.num_rows for rows in generate_shard(shard))
    except LimitReached:  # the stage continues under the whole limit
        return
    yield pa.table({"texts": [n_texts]})


def _blocks(tables: Tables) -> list[Block]:
    """Blocks of at most TEXTS_PER_UNIT texts of one tenant."""
    sizes = tables.sql("SELECT tenant, count(*) AS n FROM generation_texts GROUP BY tenant ORDER BY tenant").to_pylist()
    return [
        (size["tenant"], first, min(first + TEXTS_PER_UNIT, size["n"]))
        for size in sizes
        for first in range(0, size["n"], TEXTS_PER_UNIT)
    ]


def _unit_name(block: Block) -> str:
    """Name of the unit of a block."""
    return f"{block[0]} {block[1]}"


def _shards(whole_shard: WritingShard, places: int) -> list[WritingShard]:
    """Split into contiguous blocks, each with its share of the writer's limits."""
    count = count_shards(len(whole_shard.blocks), places, whole_shard.writer.max_workers)
    total = sum(end - first for _, first, end in whole_shard.blocks)
    shards = []
    for low, high in split_evenly(len(whole_shard.blocks), count):
        shard_blocks = whole_shard.blocks[low:high]
        share = sum(end - first for _, first, end in shard_blocks) / total
        writer = whole_shard.writer.portion(share, min(places, count))
        shards.append(replace(whole_shard, writer=writer, blocks=shard_blocks))
    return shards


def _rows(passages: pa.Table, queries: pa.Table, generator_id: str) -> pa.Table:
    """Rows of `written_queries` for passages and their queries; ids depend on passage and writer only."""
    assert queries.schema == OUTPUT_SCHEMA, "a writer returns rows of OUTPUT_SCHEMA"
    assert queries.num_rows == passages.num_rows, "a writer returns one row per text"
    chunk_keys = zip(passages["tenant"].to_pylist(), passages["chunk_id"].to_pylist(), strict=True)
    ids = [
        f"{ID_PREFIX}{hashlib.sha256(repr((*chunk_key, generator_id)).encode()).hexdigest()[:20]}"
        for chunk_key in chunk_keys
    ]
    columns = {name: passages[name] for name in ("tenant", "chunk_id")} | {
        name: queries[name] for name in OUTPUT_SCHEMA.names
    }
    return WRITTEN_QUERIES.rows(columns | {"query_id": pa.array(ids, pa.string())})
