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
from darklode.pipeline.generate.saturation import BATCH, EarlyStop, usual_similarity
from darklode.schemas.generation_tables import GENERATION_TEXTS, REAL_QUERIES, WRITTEN_QUERIES

WRITE_STAGE = Stage("written_queries", 2, ("chunks", GENERATION_TEXTS.name, REAL_QUERIES.name), (WRITTEN_QUERIES.name,))

TEXTS_PER_UNIT = BATCH
"""Maximum number of texts per unit of work."""

Block = tuple[str, int, int]
"""A unit of work: tenant, and the range of its texts (first row, end row), in the order of PASSAGES_SQL."""

ReportProgress = Callable[[int], None]

PASSAGES_SQL = """
    SELECT tenant, chunk_id, title, heading, text, md5_number_lower(concat($2, ' ', chunk_id)) AS draw
    FROM generation_texts JOIN chunks USING (tenant, chunk_id) WHERE tenant = $1 ORDER BY reached, draw, chunk_id
"""
"""Documents that no real query reaches come first, each kind in random order, which the estimates need."""

REAL_CLUSTERS_SQL = """
    SELECT text, "group" FROM real_queries WHERE tenant = $1 AND split = 'train' ORDER BY query_id
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


def write_queries(
    tables: Tables,
    output: Output,
    writer: QueryWriter,
    spread: Spread = here,
    *,
    seed: int,
    min_new_share: float | None = None,
) -> None:
    """Generate one query per text, one unit per block of texts; finished units are not generated again.

    Few-shot examples are train queries only, so held-out queries do not leak.

    Args:
        tables: `chunks`, `generation_texts` and `real_queries`.
        output: `written_queries`; its fact `generator_id` identifies the writer, `stopped` has the number of texts of
            tenants whose generation stopped early.
        writer: generates queries.
        spread: runs shards; for a writer with a cache, shards only fill the cache. Not used with `min_new_share`, where
            each block depends on the earlier ones.
        seed: seed of each text's random number, which chooses order and few-shot examples.
        min_new_share: stop a tenant at a smaller expected share of queries unlike all earlier ones; None: never.
    """
    basis = key_of(writer.generator_id, seed, *(tables.content(name) for name in WRITE_STAGE.reads))
    blocks = _blocks(tables)
    total = tables.rows(GENERATION_TEXTS.name)
    done = Counter[str]()
    stopped: dict[str, int] = {}

    def report_progress(n_texts: int) -> None:
        output.progress(done["texts"] + n_texts, total, str(writer.counters or ""))

    by_tenant = [tuple(own) for _, own in groupby(blocks, itemgetter(0))]
    for own_blocks in [tuple(blocks)] if min_new_share is None else by_tenant:
        missing = tuple(text_block for text_block in own_blocks if not output.is_done(_unit_name(text_block), basis))
        shard = WritingShard(tables, writer, seed, missing, output.unit_key("", basis))
        pieces = _pieces(shard, spread if min_new_share is None else here, report_progress)
        stop = None if min_new_share is None else _early_stop(tables, own_blocks[0][0], min_new_share)
        for block in own_blocks:
            with output.unit(_unit_name(block), basis) as unit:
                if not unit.done:
                    output.write(WRITTEN_QUERIES.name, next(pieces))
            done["texts"] += block[2] - block[1]
            report_progress(0)
            if stop and block is not own_blocks[-1]:
                stop.add(output.read_unit(unit, WRITTEN_QUERIES.name)["text"].drop_null().to_pylist())
                if stop.is_reached:
                    stopped[block[0]] = block[2]
                    break
    output.facts |= {"generator_id": writer.generator_id, **({"stopped": stopped} if stopped else {})}
    no_query = output.current_tables(WRITTEN_QUERIES.name).sql(
        "SELECT count(*) AS n FROM written_queries WHERE text IS NULL"
    )
    n_without_query = no_query["n"][0].as_py()
    drop_counts = {"no query": n_without_query} if n_without_query else {}
    if stopped:
        drop_counts["generation stopped early"] = total - done["texts"]
    output.count(
        FunnelStep(
            WRITE_STAGE.name, "texts to write for", total, "queries", total - sum(drop_counts.values()), drop_counts
        )
    )


def _early_stop(tables: Tables, tenant: str, min_new_share: float) -> EarlyStop:
    """The rule that stops a tenant's generation."""
    real_queries = tables.sql(REAL_CLUSTERS_SQL, [tenant])
    return EarlyStop(
        usual_similarity(real_queries["text"].to_pylist(), real_queries["group"].to_pylist()), min_new_share
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
