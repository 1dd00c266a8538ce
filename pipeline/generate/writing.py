"""The writing: a query for each text, in units that survive a kill."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, key_of
from darklode.pipeline.generate.port import ASKED, PREFIX, WRITTEN, Writer
from darklode.schemas.generation_tables import GENERATION_TEXTS, REAL_QUERIES, WRITTEN_QUERIES

WRITE = Stage("written_queries", 1, ("chunks", GENERATION_TEXTS.name, REAL_QUERIES.name), (WRITTEN_QUERIES.name,))

AT_ONCE = 256
"""Texts that are written for together."""

ASKED_FOR = """
    SELECT tenant, chunk_id, title, heading, text, md5_number_lower(concat($2, ' ', chunk_id)) AS draw
    FROM generation_texts JOIN chunks USING (tenant, chunk_id) WHERE tenant = $1 ORDER BY chunk_id
"""

EXAMPLES = "SELECT text FROM real_queries WHERE tenant = $1 AND split = 'train' ORDER BY query_id"


def write(tables: Tables, output: Output, writer: Writer, *, seed: int) -> None:
    """Have a query written for each text.

    Examples are train queries alone: what a writer is shown must not be what it is tested by.

    Args:
        tables: holds `chunks`, `generation_texts` and `real_queries`.
        output: takes `written_queries`; its fact `generator_id` names the writer.
        writer: writes.
        seed: of each text's own draws.
    """
    total, done = tables.rows(GENERATION_TEXTS.name), 0
    for tenant in tables.sql("SELECT DISTINCT tenant FROM generation_texts ORDER BY tenant")["tenant"].to_pylist():
        asked = tables.sql(ASKED_FOR, [tenant, str(seed)])
        examples = tables.sql(EXAMPLES, [tenant])["text"].to_pylist()
        basis = key_of(writer.generator_id, seed, *(tables.content(name) for name in WRITE.reads))
        for start in range(0, asked.num_rows, AT_ONCE):
            block = asked.slice(start, AT_ONCE).select(ASKED.names).cast(ASKED)
            with output.unit(f"{tenant} {start}", basis) as unit:
                if not unit.done:
                    found = writer.write(block, examples, _told(output, done, total, writer))
                    output.write(WRITTEN_QUERIES.name, _rows(block, found, writer.generator_id))
            done += block.num_rows
            output.progress(done, total)
    output.facts["generator_id"] = writer.generator_id
    empty = output.so_far(WRITTEN_QUERIES.name).sql("SELECT count(*) AS n FROM written_queries WHERE text IS NULL")
    left = {"no query": empty["n"][0].as_py()} if empty["n"][0].as_py() else {}
    output.count(FunnelStep(WRITE.name, "texts to write for", total, "queries", total - sum(left.values()), left))


def _told(output: Output, done: int, total: int, writer: Writer) -> Callable[[int], None]:
    return lambda more: output.progress(done + more, total, str(writer.counters or ""))


def _rows(asked: pa.Table, found: pa.Table, generator_id: str) -> pa.Table:
    assert found.schema == WRITTEN, "a writer gives rows of WRITTEN"
    assert found.num_rows == asked.num_rows, "and one for each text"
    named = zip(asked["tenant"].to_pylist(), asked["chunk_id"].to_pylist(), strict=True)
    ids = [f"{PREFIX}{hashlib.sha256(repr((*one, generator_id)).encode()).hexdigest()[:20]}" for one in named]
    columns = {name: asked[name] for name in ("tenant", "chunk_id")} | {name: found[name] for name in WRITTEN.names}
    return WRITTEN_QUERIES.rows(columns | {"query_id": pa.array(ids, pa.string())})
