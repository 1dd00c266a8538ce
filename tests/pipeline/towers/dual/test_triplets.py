"""Triplets: each learned pair once, with its views, a negative that answers nothing, and what must be no negative."""

import pyarrow as pa

from darklode.pipeline.base.artifacts import Output, Run, Tables
from darklode.pipeline.towers.dual.triplets import READS, TRIPLETS_STAGE, tower_triplets
from darklode.schemas.tables import TABLES
from helpers.dual import build_with_documents
from helpers.runs import execute, put, read

from .conftest import Trained


def rewritten(both: Trained, run: Run, out: Run, more: int = 0) -> list[dict[str, object]]:
    """The triplets of another run with the same queries, labels and texts."""
    source = type(both.base.sources[0])(run, 0, mined=False, text_characters=100)
    for name in READS:
        put(out, name, both.out.tables(name).read(name))

    def work(tables: Tables, output: Output) -> None:
        tower_triplets(tables, output, [source], seed=both.settings.seed + more)

    execute(out, TRIPLETS_STAGE, work)
    return read(out, "tower_triplets")


def test_a_row_for_each_pair_with_its_views(both: Trained) -> None:
    rows = {str(row["query_id"]): row for row in read(both.out, "tower_triplets")}
    learned = [row for row in read(both.out, "adaptation_labels") if row["learned"]]
    assert sorted(rows) == sorted(str(row["query_id"]) for row in learned)
    assert {query: row["weight"] for query, row in rows.items()} == {row["query_id"]: row["weight"] for row in learned}
    assert len(rows) == 39, "one train query is spelled as a test query is"
    assert (rows["train-002"]["title"], rows["train-001"]["negative_id"]) == (None, None)
    assert str(rows["train-004"]["content"]).startswith("a subject\n")
    assert rows["train-003"]["negative_id"] == "train-003#1"
    manifest = both.out.manifests()[TRIPLETS_STAGE.name]
    assert [(step.rows_in, step.rows_out, step.dropped) for step in manifest.funnel] == [(39, 39, {})]
    facts = manifest.facts
    assert facts == {"triplets": 39, "without a title": 1, "without a negative": 1}


def test_the_order_is_drawn_by_the_seed_alone(both: Trained) -> None:
    ids = [row["query_id"] for row in read(both.out, "tower_triplets")]
    assert ids != sorted(ids)  # type: ignore[type-var]
    run, root = both.base.sources[0].run, both.root
    assert [row["query_id"] for row in rewritten(both, run, Run(str(root / "again")))] == ids
    assert [row["query_id"] for row in rewritten(both, run, Run(str(root / "other")), more=1)] != ids


def test_what_answers_the_query_is_no_negative_and_a_pair_counts_once(both: Trained) -> None:
    run = build_with_documents(both.root / "odd")
    rows = [row for row in read(run, "triplets") if row["query_id"] == "train-003"]
    twice = [{**rows[0], "triplet_id": f"a{one}", "negative_ids": ["train-003#0"]} for one in range(2)]
    put(run, "triplets", pa.Table.from_pylist(twice, schema=TABLES["triplets"].schema))
    (row,) = rewritten(both, run, Run(str(both.root / "odd-out")))
    assert (row["query_id"], row["negative_id"], row["negative_content"]) == ("train-003", None, None)
