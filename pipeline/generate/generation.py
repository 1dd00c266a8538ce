"""The writing: a query for each text, in units that survive a kill."""

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
from darklode.pipeline.generate.port import ASKED, PREFIX, WRITTEN, QueryWriter
from darklode.schemas.generation_tables import GENERATION_TEXTS, REAL_QUERIES, WRITTEN_QUERIES

WRITE = Stage("written_queries", 1, ("chunks", GENERATION_TEXTS.name, REAL_QUERIES.name), (WRITTEN_QUERIES.name,))

AT_ONCE = 256
"""Texts that are written for together."""

Block = tuple[str, int, int]
Tell = Callable[[int], None]

ASKED_FOR = """
    SELECT tenant, chunk_id, title, heading, text, md5_number_lower(concat($2, ' ', chunk_id)) AS draw
    FROM generation_texts JOIN chunks USING (tenant, chunk_id) WHERE tenant = $1 ORDER BY chunk_id
"""

EXAMPLES = "SELECT text FROM real_queries WHERE tenant = $1 AND split = 'train' ORDER BY query_id"


@dataclass(frozen=True)
class WritingShard:
    """A shard: blocks of some tenants' texts, and who writes for them.

    Attributes:
        tables: hold `chunks`, `generation_texts` and `real_queries`.
        writer: writes.
        seed: of each text's own draws.
        blocks: tenant, first row and one past the last of each, in order.
        basis: names all that what is written depends on.
    """

    tables: Tables
    writer: QueryWriter
    seed: int
    blocks: tuple[Block, ...]
    basis: str

    @property
    def name(self) -> str:
        tenant, first, _ = self.blocks[0]
        return f"write for {tenant} from text {first} and {len(self.blocks) - 1} more blocks"

    @property
    def folder(self) -> str:
        return f"progress/{WRITE.name}/{key_of(self.basis, self.blocks)}"


def write_queries(tables: Tables, output: Output, writer: QueryWriter, spread: Spread = here, *, seed: int) -> None:
    """Have a query written for each text, a block of them a unit.

    Examples are train queries alone: what a writer is shown must not be what it is tested by.

    Args:
        tables: holds `chunks`, `generation_texts` and `real_queries`.
        output: takes `written_queries`; its fact `generator_id` names the writer.
        writer: writes.
        spread: where it writes; one that keeps what it wrote is asked ahead there.
        seed: of each text's own draws.
    """
    basis = key_of(writer.generator_id, seed, *(tables.content(name) for name in WRITE.reads))
    blocks, total, done = _blocks(tables), tables.rows(GENERATION_TEXTS.name), Counter[str]()
    missing = tuple(text_block for text_block in blocks if not output.is_done(_name(text_block), basis))

    def tell(more: int) -> None:
        output.progress(done["texts"] + more, total, str(writer.counters or ""))

    pieces = _pieces(WritingShard(tables, writer, seed, missing, output.unit_key("", basis)), spread, tell)
    for block in blocks:
        with output.unit(_name(block), basis) as unit:
            if not unit.done:
                output.write(WRITTEN_QUERIES.name, next(pieces))
        done["texts"] += block[2] - block[1]
        tell(0)
    output.facts["generator_id"] = writer.generator_id
    empty = output.current_tables(WRITTEN_QUERIES.name).sql(
        "SELECT count(*) AS n FROM written_queries WHERE text IS NULL"
    )
    drop_counts = {"no query": empty["n"][0].as_py()} if empty["n"][0].as_py() else {}
    output.count(
        FunnelStep(WRITE.name, "texts to write for", total, "queries", total - sum(drop_counts.values()), drop_counts)
    )


def _pieces(every: WritingShard, spread: Spread, tell: Tell) -> Iterator[pa.Table]:
    """What is written for each block."""
    if spread is here or not every.blocks:
        return generate_shard(every, tell)
    if not every.writer.keeps:
        return chain.from_iterable(spread(generate_shard, _shards(every, spread.places)))
    texts = 0
    for pieces in spread(run_writer, _shards(every, spread.places)):
        for piece in pieces:
            texts += piece["texts"][0].as_py()
            tell(texts)
    return generate_shard(every, tell)


def generate_shard(shard: WritingShard, tell: Tell = lambda _more: None) -> Pieces:
    """Rows of `written_queries`, a table for each block."""
    for tenant, some in groupby(shard.blocks, itemgetter(0)):
        passages = shard.tables.sql(ASKED_FOR, [tenant, str(shard.seed)])
        examples = shard.tables.sql(EXAMPLES, [tenant])["text"].to_pylist()
        for _, first, end in some:
            block = passages.slice(first, end - first).select(ASKED.names).cast(ASKED)
            yield _rows(block, shard.writer.write(block, examples, tell), shard.writer.generator_id)


def run_writer(shard: WritingShard) -> Pieces:
    """Have a writer keep what it writes: how many texts it did. One whose portion is used up leaves the rest."""
    try:
        texts = sum(rows.num_rows for rows in generate_shard(shard))
    except LimitReached:  # the stage goes on from here, and knows the whole limit
        return
    yield pa.table({"texts": [texts]})


def _blocks(tables: Tables) -> list[Block]:
    sizes = tables.sql("SELECT tenant, count(*) AS n FROM generation_texts GROUP BY tenant ORDER BY tenant").to_pylist()
    return [
        (size["tenant"], first, min(first + AT_ONCE, size["n"]))
        for size in sizes
        for first in range(0, size["n"], AT_ONCE)
    ]


def _name(block: Block) -> str:
    return f"{block[0]} {block[1]}"


def _shards(every: WritingShard, places: int) -> list[WritingShard]:
    """Neighbouring blocks, each with its portion of what the writer may use."""
    count = count_shards(len(every.blocks), places, every.writer.max_workers)
    total = sum(end - first for _, first, end in every.blocks)
    shards = []
    for low, high in split_evenly(len(every.blocks), count):
        shard_blocks = every.blocks[low:high]
        share = sum(end - first for _, first, end in shard_blocks) / total
        shards.append(replace(every, writer=every.writer.portion(share, min(places, count)), blocks=shard_blocks))
    return shards


def _rows(passages: pa.Table, queries: pa.Table, generator_id: str) -> pa.Table:
    assert queries.schema == WRITTEN, "a writer gives rows of WRITTEN"
    assert queries.num_rows == passages.num_rows, "and one for each text"
    chunk_keys = zip(passages["tenant"].to_pylist(), passages["chunk_id"].to_pylist(), strict=True)
    ids = [
        f"{PREFIX}{hashlib.sha256(repr((*chunk_key, generator_id)).encode()).hexdigest()[:20]}"
        for chunk_key in chunk_keys
    ]
    columns = {name: passages[name] for name in ("tenant", "chunk_id")} | {
        name: queries[name] for name in WRITTEN.names
    }
    return WRITTEN_QUERIES.rows(columns | {"query_id": pa.array(ids, pa.string())})
