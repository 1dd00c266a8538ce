"""Agreement of a panel, by hand and against scikit-learn."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from conftest import put
from pipeline.agreement import pairwise_kappa, panel_alpha
from pipeline.artifacts import Run
from pipeline.card import card
from pipeline.raters import alpha
from pipeline.views import all_tables
from schemas.settings import Settings
from schemas.tables import PANEL_VERDICTS

LABELS: dict[str, list[bool | None]] = {
    "one": [True, True, True, False, False, False, None, None],
    "two": [True, True, False, False, False, True, True, None],
    "three": [True, None, False, False, True, False, False, True],
}


def give(run: Run, labels: dict[str, list[bool | None]], tenant: str = "t") -> None:
    rows = [
        {"tenant": tenant, "query_id": "q", "chunk_id": f"c{place}", "judge_id": name, "relevant": label}
        for name, said in labels.items()
        for place, label in enumerate(said)
    ]
    put(run, "panel_verdicts", pa.Table.from_pylist(rows, schema=PANEL_VERDICTS.schema))


def test_pairwise_kappa_is_over_the_pairs_that_both_labelled(run: Run) -> None:
    give(run, LABELS)
    found = pairwise_kappa(all_tables(run)).to_pylist()
    assert [(row["judge_id"], row["other"], row["pairs"]) for row in found] == [
        ("one", "three", 5),
        ("one", "two", 6),
        ("three", "two", 6),
    ]
    for row in found:
        both = [
            (one, two)
            for one, two in zip(LABELS[row["judge_id"]], LABELS[row["other"]], strict=True)
            if one is not None and two is not None
        ]
        assert row["kappa"] == pytest.approx(cohen_kappa_score(*zip(*both, strict=True)))
    # one and two: both 2, alone 1 and 1, neither 2: observed 4/6, by chance 1/2.
    assert found[1]["kappa"] == pytest.approx(1 / 3)


def test_alpha_by_hand(run: Run) -> None:
    give(run, {name: LABELS[name] for name in ("one", "two")})
    # 6 pairs, 12 labels, 6 of each; 2 pairs differ: 1 - 11 * (2 * 2) / (2 * 36).
    (row,) = panel_alpha(all_tables(run)).to_pylist()
    assert (row["pairs"], row["unanimous"]) == (6, 4)
    assert row["alpha"] == pytest.approx(1 - 11 * 4 / 72)


def test_alpha_leaves_out_what_only_one_has_labelled(run: Run) -> None:
    give(run, LABELS)
    (row,) = panel_alpha(all_tables(run)).to_pylist()
    assert row["pairs"] == 7


def test_the_example_of_the_literature() -> None:
    # Krippendorff (2011), nominal data of two observers and two values: ten units, alpha 0.095.
    one, two = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    yes = np.array(one) + np.array(two)
    assert alpha(yes, 2 - yes, np.ones(10, np.int64)) == pytest.approx(0.095, abs=5e-4)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20))
def test_alpha_is_one_only_without_a_difference(votes: list[tuple[int, int]]) -> None:
    kinds = [(yes, no) for yes, no in votes if yes + no > 1]
    yes, no = np.array([k[0] for k in kinds], np.int64), np.array([k[1] for k in kinds], np.int64)
    found = alpha(yes, no, np.ones(len(kinds), np.int64))
    if not math.isnan(found):
        assert found <= 1
        assert (found == 1) == (not (yes * no).any())


def test_a_large_run_does_not_overflow(run: Run) -> None:
    give(run, {"one": [True] * 3 + [False] * 3, "two": [True] * 3 + [False] * 3})
    (row,) = pairwise_kappa(all_tables(run)).to_pylist()
    assert row["kappa"] == 1
    give(run, {"one": [True] * 3, "two": [True] * 3})
    assert pairwise_kappa(all_tables(run)).to_pylist()[0]["kappa"] is None
    assert panel_alpha(all_tables(run)).to_pylist()[0]["alpha"] is None


def test_the_card_shows_the_agreement(run: Run) -> None:
    assert "Agreement" not in card(run, Settings())
    give(run, LABELS)
    text = card(run, Settings())
    assert "| one | two | 6 | 2 | 1 | 1 | 2 | 0.333 |" in text
    assert "## Agreement of the whole panel" in text
