"""What a swap changes for live queries: overlaps, both lists, and the page."""

from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Output, Run
from darklode.pipeline.retrieve.retrievers.kinds import own_retrievers
from darklode.pipeline.serve.index import Index
from darklode.pipeline.serve.swap import SWAP_STAGE, Swapped, distribution, most, page, sentence, swap
from darklode.pipeline.train.sources import Source
from helpers.adapted import TENANT, word
from helpers.runs import execute


@pytest.fixture
def swapped(shipped: Path, tmp_path: Path, run: Run) -> Swapped:
    """BM25 before, character vectors after."""
    index = Index(Source(Run(str(shipped / "run")), 0, mined=False, text_characters=9), TENANT, tmp_path)
    live = pa.table({"query": [f"how {word(7 * n)}" for n in range(4)] + ["<b>zzz|"], "searches": [1, 9, 2, None, 7]})
    kinds = own_retrievers()

    def work(_tables: object, output: Output) -> None:
        swap(live, output, index=index, base=kinds["bm25"], adapted=kinds["character"])

    execute(run, SWAP_STAGE, work)
    return Swapped(run.tables("swap").read("swap"), index, "swap.md")


def test_each_query_has_both_lists_and_what_they_share(swapped: Swapped) -> None:
    rows = swapped.rows.to_pylist()
    assert sorted(row["searches"] or 0 for row in rows) == [0, 1, 2, 7, 9]
    for row in rows:
        assert row["overlap"] == len(set(row["base_ids"]) & set(row["adapted_ids"]))
        assert len(row["adapted_ids"]) <= 10
    (lost,) = [row for row in rows if row["query"] == "<b>zzz|"]
    assert (lost["base_ids"], lost["overlap"]) == ([], 0)
    assert sum(distribution(swapped.rows)["queries"].to_pylist()) == 5
    assert sentence(swapped.rows).startswith("5 queries: 5 change a text of their first ten;")


def test_the_page_shows_what_goes_and_comes_and_no_markup_of_a_query(swapped: Swapped) -> None:
    told = most(swapped, 2).to_pylist()
    assert len(told) == 2
    assert told[0]["overlap"] == min(swapped.rows["overlap"].to_pylist())
    text = page(swapped, "adapter").decode()
    assert "&lt;b>zzz\\|" in text
    assert "# What adapter changes" in text
