"""What a swap changes for live queries: overlaps, both lists, and their titles."""

from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Output, Run
from darklode.pipeline.retrieve.retrievers.kinds import own_retrievers
from darklode.pipeline.serve.encoder_swap import ENCODER_SWAP_STAGE, distribution, most_changed, sentence, swap
from darklode.pipeline.serve.run_search import TenantIndex
from darklode.pipeline.train.data.sources import TrainingSource
from helpers.adapted import TENANT, word
from helpers.runs import execute


@pytest.fixture
def swapped(shipped: Path, tmp_path: Path, run: Run) -> pa.Table:
    """BM25 before, character vectors after."""
    index = TenantIndex(TrainingSource(Run(str(shipped / "run")), 0, mined=False, text_characters=9), TENANT, tmp_path)
    live = pa.table({"query": [f"how {word(7 * n)}" for n in range(4)] + ["<b>zzz|"], "searches": [1, 9, 2, None, 7]})
    kinds = own_retrievers()

    def work(_tables: object, output: Output) -> None:
        swap(live, output, index=index, base=kinds["bm25"], adapted=kinds["character"])

    execute(run, ENCODER_SWAP_STAGE, work)
    return run.tables("encoder_swap").read("encoder_swap")


def test_each_query_has_both_lists_and_what_they_share(swapped: pa.Table) -> None:
    rows = swapped.to_pylist()
    assert sorted(row["searches"] or 0 for row in rows) == [0, 1, 2, 7, 9]
    for row in rows:
        assert row["overlap"] == len(set(row["base_ids"]) & set(row["adapted_ids"]))
        assert len(row["adapted_ids"]) <= 10
    (lost,) = [row for row in rows if row["query"] == "<b>zzz|"]
    assert (lost["base_ids"], lost["overlap"]) == ([], 0)
    assert sum(distribution(swapped)["queries"].to_pylist()) == 5
    assert sentence(swapped).startswith("5 queries: the first ten change for 5;")


def test_the_most_changed_come_first_with_the_titles_of_what_goes_and_comes(swapped: pa.Table) -> None:
    told = most_changed(swapped, 2).to_pylist()
    assert [row["overlap"] for row in told] == sorted(swapped["overlap"].to_pylist())[:2]
    (lost,) = [row for row in most_changed(swapped, 9).to_pylist() if row["query"] == "<b>zzz|"]
    assert (lost["goes"], lost["overlap"]) == ("nothing", 0)
    for row in swapped.to_pylist():
        for name in ("base", "adapted"):
            assert row[f"{name}_titles"] == [one.replace("#", "-") for one in row[f"{name}_ids"]]
