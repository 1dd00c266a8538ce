"""Two tenants with the same ids and almost the same texts never meet in a row, and neither changes the other's rows."""

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from darklode.flows.config import load_settings
from darklode.pipeline.base.artifacts import Run
from darklode.schemas.adaptation_tables import ADAPTATION_TABLES
from darklode.schemas.day_tables import DAY_TABLES
from darklode.schemas.distil_tables import DISTIL_TABLES
from darklode.schemas.evaluation_tables import EVALUATION_TABLES
from darklode.schemas.generation_tables import GENERATION_TABLES
from darklode.schemas.law_tables import LAW_TABLES
from darklode.schemas.mined_tables import MINED_TABLES
from darklode.schemas.model_swap_tables import MODEL_SWAP_TABLES
from darklode.schemas.probe_tables import PROBE_TABLES
from darklode.schemas.reranker_tables import RERANKER_TABLES
from darklode.schemas.review_tables import REVIEW_TABLES
from darklode.schemas.serving_tables import SERVING_TABLES
from darklode.schemas.tables import TABLES, TRIPLETS
from darklode.schemas.tower_tables import TOWER_TABLES
from helpers.commands import build_without_prefect
from helpers.repeats import mostly_slow

ACME, BIRCH = "acme", "birch"
MARKERS = {ACME: "acmeonly", BIRCH: "birchonly"}
SUBJECTS = "invoice webhook token refund tenant export locale agent ticket survey macro queue".split()
VERBS = "rotate create delete archive rename restore share schedule".split()
OF_A_TENANT = [name for name, table in TABLES.items() if "tenant" in table.key]

Rows = list[dict[str, str]]


def sources(seed: int) -> tuple[Rows, Rows]:
    """Documents and queries without a tenant: every text has a place for the tenant's marker."""
    draw = random.Random(seed)
    docs = [
        {
            "doc_id": f"d{number}",
            "title": f"How to {draw.choice(VERBS)} a {subject}",
            "text": "\n\n".join(
                f"MARKER To {verb} the {subject}, open the {draw.choice(SUBJECTS)} page and choose {verb}. "
                f"A {draw.choice(SUBJECTS)} that was {verb}d stays in the log of the {subject}."
                for verb in draw.sample(VERBS, draw.randint(1, 5))
            ),
        }
        for number, subject in enumerate(SUBJECTS)
    ]
    queries = [
        {"query_id": f"q{number}", "text": f"how do I {draw.choice(VERBS)} the {draw.choice(SUBJECTS)} MARKER now"}
        for number in range(draw.randint(8, 40))
    ]
    return docs, queries


def given(folder: Path, rows: Rows, tenants: list[str]) -> Path:
    """A JSONL file of the rows, once for each tenant, line by line in turn."""
    lines = [
        json.dumps({**row, "text": row["text"].replace("MARKER", MARKERS[tenant]), "tenant": tenant})
        for row in rows
        for tenant in tenants
    ]
    folder.mkdir(parents=True)
    file = folder / "rows.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return file


def run_of(folder: Path, seed: int, tenants: list[str], assignments: list[str]) -> Run:
    docs, queries = sources(seed)
    given_to_all = ["evaluate.n_resamples=20", "chunk.size=150", "labels.training_precision=0"]
    settings = load_settings(assignments=[*given_to_all, *assignments])
    places = given(folder / "docs", docs, tenants), given(folder / "queries", queries, tenants)
    build_without_prefect(folder / "run", *places, settings)
    return Run(str(folder / "run"))


def rows_of(run: Run, table: str, tenant: str) -> pa.Table:
    """A tenant's rows, in the order of their keys."""
    rows = run.tables(table).read(table)
    rows = rows.filter(pc.equal(rows["tenant"], tenant))
    return rows.sort_by([(name, "ascending") for name in TABLES[table].key])


@pytest.mark.parametrize(
    ("seed", "assignments"),
    mostly_slow(
        [
            (1, []),
            (2, ["clean.keep_all=true"]),
            (3, ["clean.keep_all=true", "pool.depth=3", "pool.search_depth=5"]),
            (4, ["clean.keep_all=true", "pool.method=rrf", "pool.budget=4", "judge.threshold=0.2"]),
            (5, ["clean.keep_all=true", "judge.strategy=adaptive", "judge.threshold=0.2"]),
        ],
        fast=1,
    ),
)
def test_two_tenants_never_meet(tmp_path: Path, seed: int, assignments: list[str]) -> None:
    both = run_of(tmp_path / "both", seed, [BIRCH, ACME], assignments)
    alone = run_of(tmp_path / "alone", seed, [ACME], assignments)
    tables = both.tables()
    for tenant, stranger in ((ACME, MARKERS[BIRCH]), (BIRCH, MARKERS[ACME])):
        for table in ("rankings", "pool", "verdicts", "qrels"):
            joined = tables.sql(
                f"""
                SELECT c.text FROM {table} r
                LEFT JOIN chunks c ON (c.tenant, c.chunk_id) = (r.tenant, r.chunk_id) AND contains(c.text, ?)
                WHERE r.tenant = ?
                """,
                [MARKERS[tenant], tenant],
            )
            assert joined.num_rows > 0, table
            assert joined["text"].null_count == 0, f"a row of {tenant} in {table} names a chunk it does not have"
        mine = rows_of(both, "triplets", tenant)
        texts = [t for row in mine.to_pylist() for t in (row["query"], row["positive"], *row["negatives"])]
        assert texts
        assert all(MARKERS[tenant] in text and stranger not in text for text in texts)
    for table in tables_written(both):
        assert rows_of(both, table, ACME).equals(rows_of(alone, table, ACME)), f"{table} of acme changed with birch"

    measured = ["retriever", "recall", "recall_at_depth", "leave_one_out", "unique_positives", "positives", "queries"]
    all_of_alone = alone.tables("audit_retrievers").read("audit_retrievers").sort_by("retriever")
    assert rows_of(both, "audit_retrievers", ACME).select(measured).equals(all_of_alone.select(measured))


def tables_written(run: Run) -> list[str]:
    """Names of the tables of tenants' rows that a build writes. The audit's leaves a single tenant's name out."""
    found = [name for name in OF_A_TENANT if name in run.parts() and name != "audit_retrievers"]
    of_others = (
        *ADAPTATION_TABLES,
        *DAY_TABLES,
        *MINED_TABLES,
        *LAW_TABLES,
        *EVALUATION_TABLES,
        *REVIEW_TABLES,
        *SERVING_TABLES,
        *GENERATION_TABLES,
        *TOWER_TABLES,
        *MODEL_SWAP_TABLES,
        *RERANKER_TABLES,
        *DISTIL_TABLES,
        *PROBE_TABLES,
    )
    others = {"audit_retrievers", "corrected_audit", *(table.name for table in of_others if "tenant" in table.key)}
    others |= {TRIPLETS.changed_column, TRIPLETS.removed_column, "test_texts", "manual_texts"}
    optional = {"unjudged", "stopping", "judgments", "judged_chunks"}  # of adaptive judging, and of given judgments
    assert set(OF_A_TENANT) - set(found) - optional == others
    return found


def test_a_chunk_of_one_tenant_is_reached_by_no_id_of_the_other(tmp_path: Path) -> None:
    """The ids are the same in both, so only the tenant keeps them apart: the join above is not empty by chance."""
    run = run_of(tmp_path, 5, [ACME, BIRCH], ["clean.keep_all=true"])
    ids = {tenant: set(rows_of(run, "documents", tenant)["doc_id"].to_pylist()) for tenant in MARKERS}
    queries = {tenant: set(rows_of(run, "queries", tenant)["query_id"].to_pylist()) for tenant in MARKERS}
    assert ids[ACME] == ids[BIRCH] != set()
    assert queries[ACME] == queries[BIRCH] != set()
