"""Rankings of the test queries by each system: configured retrievers and encoders, and run files of other systems."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Json, Output, Stage, Tables, Unit, digest, key_of
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.evaluate.run_files import RunFile
from darklode.pipeline.retrieve.retrievers.factory import Factory
from darklode.pipeline.retrieve.retrievers.member_lists import MemberLists, shared_depths
from darklode.pipeline.retrieve.search import QUERY_BLOCK, SearchShard, rank, reject_unused
from darklode.schemas.tables import TABLES

RANKINGS_STAGE = Stage("test_rankings", 2, ("test_queries", "test_texts"), ("test_rankings",))
CHUNK_RANKINGS_STAGE = RANKINGS_STAGE.reading("chunks")


def rank_all(
    tables: Tables,
    output: Output,
    *,
    depth: int,
    systems: Mapping[str, Factory],
    identities: Mapping[str, Json],
    run_files: Sequence[str],
) -> None:
    """Write each system's ranking of each test query.

    One unit per tenant and system, so adding a system recomputes no other. A tenant without texts has no rankings.
    Memory: the retriever, and the rankings of 1,024 queries.

    Args:
        tables: must contain `test_queries`, `test_texts`, and `chunks` if these are searched.
        output: receives `test_rankings`; unusable rows of run files are rejects.
        depth: maximum length of the rankings.
        systems: builds each retriever on a tenant's texts, by name.
        identities: everything that can change each retriever's rankings.
        run_files: TREC run files of other systems.

    Raises:
        SettingsError: two systems have the same name.
        InputError: a run file cannot be read, has no test query, or no text of the run.
    """
    runs = [RunFile(file) for file in run_files]
    names = [*systems, *(run.name for run in runs)]
    if len(set(names)) < len(names):
        raise SettingsError(f"two systems have the same name ({', '.join(names)}); rename a run file")
    texts = "chunks" if "chunks" in tables else "test_texts"
    searched = tables.with_parts("chunks", tables.parts(texts)).with_parts("queries", tables.parts("test_queries"))
    input_digests = [digest(tables.parts(name)) for name in (texts, "test_queries")]
    n_done = 0
    tenants = pc.unique(tables.read("test_queries", ["tenant"])["tenant"]).sort().to_pylist()
    total = len(systems) * len(tenants) + len(run_files)
    with tempfile.TemporaryDirectory(prefix="darklode-lists-") as scratch:
        lists = _member_lists(Path(scratch), tenants, systems)
        for name, factory in systems.items():
            for tenant in tenants:
                with output.unit(f"{tenant!r} {name!r}", key_of(*input_digests, identities[name])) as unit:
                    if not unit.done:
                        shard = SearchShard(searched, tenant, ((name, factory),), depth, "", lists[tenant])
                        _search(searched, output, unit, shard)
                n_done += 1
                output.progress(n_done, total, name)
    for run in runs:
        for rows in run.lists(tables.with_parts("chunks", tables.parts(texts)), output, depth):
            output.write("test_rankings", rows)
        n_done += 1
        output.progress(n_done, total, run.name)
    _count(tables, output, len(names))


def _member_lists(scratch: Path, tenants: Sequence[str], systems: Mapping[str, Factory]) -> dict[str, MemberLists]:
    """A folder for each tenant's rankings that several systems need."""
    depths = shared_depths(systems.values())
    lists = {tenant: MemberLists(scratch / str(number), depths) for number, tenant in enumerate(tenants)}
    for tenant_lists in lists.values():
        tenant_lists.folder.mkdir()
    return lists


def _search(tables: Tables, output: Output, unit: Unit, lists: SearchShard) -> None:
    """Write a system's rankings of a tenant's queries; the tables of `rank` after them are facts and unused rows."""
    queries = pc.sum(pc.equal(tables.read("queries", ["tenant"])["tenant"], lists.tenant)).as_py()
    if not TenantChunks(tables, lists.tenant).n:
        return
    pieces = rank(lists)
    for rows in islice(pieces, -(-queries // QUERY_BLOCK)):
        output.write("test_rankings", _rank_rows(rows, lists.retrievers[0][0]))
    unit.facts = next(pieces).to_pylist()[0]
    reject_unused(output, lists.tenant, next(pieces))


def _rank_rows(rows: pa.Table, name: str) -> pa.Table:
    columns = {column: rows[column] for column in ("tenant", "query_id", "rank", "score")}
    return TABLES["test_rankings"].rows(
        columns | {"system": pa.repeat(name, rows.num_rows), "text_id": rows["chunk_id"]}
    )


def _count(tables: Tables, output: Output, systems: int) -> None:
    n_requested = tables.rows("test_queries") * systems
    ranked = sum(part.rows for part in output.parts["test_rankings"])
    output.count(FunnelStep("test_rankings", "queries × systems", n_requested, "ranked texts", ranked))
