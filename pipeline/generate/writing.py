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
from darklode.pipeline.base.spread import Pieces, Spread, dealt, here, worked_apart
from darklode.pipeline.generate.port import ASKED, PREFIX, WRITTEN, Writer
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
class Texts:
    """A shard: blocks of some tenants' texts, and who writes for them.

    Attributes:
        tables: hold `chunks`, `generation_texts` and `real_queries`.
        writer: writes.
        seed: of each text's own draws.
        blocks: tenant, first row and one past the last of each, in order.
        basis: names all that what is written depends on.
    """

    tables: Tables
    writer: Writer
    seed: int
    blocks: tuple[Block, ...]
    basis: str

    @property
    def name(self) -> str:
        """See `Shard`."""
        tenant, first, _ = self.blocks[0]
        return f"write for {tenant} from text {first} and {len(self.blocks) - 1} more blocks"

    @property
    def place(self) -> str:
        """See `Shard`."""
        return f"progress/{WRITE.name}/{key_of(self.basis, self.blocks)}"


def write(tables: Tables, output: Output, writer: Writer, spread: Spread = here, *, seed: int) -> None:
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
    missing = tuple(one for one in blocks if not output.stands(_name(one), basis))

    def tell(more: int) -> None:
        output.progress(done["texts"] + more, total, str(writer.counters or ""))

    pieces = _pieces(Texts(tables, writer, seed, missing, output.unit_key("", basis)), spread, tell)
    for block in blocks:
        with output.unit(_name(block), basis) as unit:
            if not unit.done:
                output.write(WRITTEN_QUERIES.name, next(pieces))
        done["texts"] += block[2] - block[1]
        tell(0)
    output.facts["generator_id"] = writer.generator_id
    empty = output.so_far(WRITTEN_QUERIES.name).sql("SELECT count(*) AS n FROM written_queries WHERE text IS NULL")
    left = {"no query": empty["n"][0].as_py()} if empty["n"][0].as_py() else {}
    output.count(FunnelStep(WRITE.name, "texts to write for", total, "queries", total - sum(left.values()), left))


def _pieces(every: Texts, spread: Spread, tell: Tell) -> Iterator[pa.Table]:
    """What is written for each block."""
    if spread is here or not every.blocks:
        return written(every, tell)
    if not every.writer.keeps:
        return chain.from_iterable(spread(written, _shards(every, spread.places)))
    texts = 0
    for pieces in spread(keep, _shards(every, spread.places)):
        for piece in pieces:
            texts += piece["texts"][0].as_py()
            tell(texts)
    return written(every, tell)


def written(shard: Texts, tell: Tell = lambda _more: None) -> Pieces:
    """Rows of `written_queries`, a table for each block."""
    for tenant, some in groupby(shard.blocks, itemgetter(0)):
        asked = shard.tables.sql(ASKED_FOR, [tenant, str(shard.seed)])
        examples = shard.tables.sql(EXAMPLES, [tenant])["text"].to_pylist()
        for _, first, end in some:
            block = asked.slice(first, end - first).select(ASKED.names).cast(ASKED)
            yield _rows(block, shard.writer.write(block, examples, tell), shard.writer.generator_id)


def keep(shard: Texts) -> Pieces:
    """Have a writer keep what it writes: how many texts it did. One whose portion is used up leaves the rest."""
    try:
        texts = sum(rows.num_rows for rows in written(shard))
    except LimitReached:  # the stage goes on from here, and knows the whole limit
        return
    yield pa.table({"texts": [texts]})


def _blocks(tables: Tables) -> list[Block]:
    sizes = tables.sql("SELECT tenant, count(*) AS n FROM generation_texts GROUP BY tenant ORDER BY tenant").to_pylist()
    return [
        (one["tenant"], first, min(first + AT_ONCE, one["n"])) for one in sizes for first in range(0, one["n"], AT_ONCE)
    ]


def _name(block: Block) -> str:
    return f"{block[0]} {block[1]}"


def _shards(every: Texts, places: int) -> list[Texts]:
    """Neighbouring blocks, each with its portion of what the writer may use."""
    count = worked_apart(len(every.blocks), places, every.writer.workers)
    total = sum(end - first for _, first, end in every.blocks)
    shards = []
    for low, high in dealt(len(every.blocks), count):
        mine = every.blocks[low:high]
        share = sum(end - first for _, first, end in mine) / total
        shards.append(replace(every, writer=every.writer.portion(share, min(places, count)), blocks=mine))
    return shards


def _rows(asked: pa.Table, found: pa.Table, generator_id: str) -> pa.Table:
    assert found.schema == WRITTEN, "a writer gives rows of WRITTEN"
    assert found.num_rows == asked.num_rows, "and one for each text"
    named = zip(asked["tenant"].to_pylist(), asked["chunk_id"].to_pylist(), strict=True)
    ids = [f"{PREFIX}{hashlib.sha256(repr((*one, generator_id)).encode()).hexdigest()[:20]}" for one in named]
    columns = {name: asked[name] for name in ("tenant", "chunk_id")} | {name: found[name] for name in WRITTEN.names}
    return WRITTEN_QUERIES.rows(columns | {"query_id": pa.array(ids, pa.string())})
