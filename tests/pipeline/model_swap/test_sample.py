"""The texts that both encoders embed, and their heat."""

import pyarrow.compute as pc
import pytest

from darklode.pipeline.model_swap.sample import SAMPLE_STAGE
from helpers.runs import read
from helpers.swapped import SwappedRun


@pytest.mark.slow
def test_a_small_index_is_taken_as_a_whole_and_half_of_it_is_fitted(swapped: SwappedRun) -> None:
    rows = swapped.out.tables("swap_texts").read("swap_texts")
    assert rows.num_rows == 630
    order = sorted(rows["fit_order"].drop_null().to_pylist())
    assert order == list(range(315))
    assert pc.sum(rows["heat"]).as_py() == 10 * 153, "each training query has ten first results"
    facts = swapped.out.manifests()[SAMPLE_STAGE.name].facts
    assert facts == {"index texts": 630, "heat": "first results of training queries"}


@pytest.mark.slow
def test_a_sample_has_the_answers_of_test_queries_first(swapped: SwappedRun) -> None:
    swapped.swap("sampled", min_share=0.0, sample=100)
    rows = read(type(swapped.out)(str(swapped.root / "sampled")), "swap_texts")
    names = {row["text_id"] for row in rows}
    assert len(rows) == 100
    answers = {f"test-{number:03}#0" for number in range(1, 20)} | {"train-000#0"}
    assert answers <= names
