"""The fitted maps, written and read again."""

import pytest

from darklode.pipeline.model_swap.selection import METHODS
from darklode.pipeline.model_swap.stage import load_maps, load_selected, selected_method
from helpers.runs import read
from helpers.swapped import SwappedRun


@pytest.mark.slow
def test_the_best_map_of_each_method_is_kept_and_one_is_selected(swapped: SwappedRun) -> None:
    trials = read(swapped.out, "swap_trials")
    (selected,) = [row for row in trials if row["selected"]]
    assert selected["recall_10"] == max(row["recall_10"] for row in trials)
    tables = swapped.out.tables()
    maps = load_maps(tables)
    assert set(maps) == set(METHODS)
    assert selected_method(tables) == selected["method"]
    assert load_selected(tables)[0][0].shape[1] == 12
    assert load_selected(tables)[-1][0].shape[0] == 8
