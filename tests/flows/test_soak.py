"""Sixty nights with all that goes wrong end with the tables of one run over everything, byte for byte.

Takes two minutes of processor time. DARKLODE_SOAK_NIGHTS and DARKLODE_SOAK_SEEDS (such as 1,2,3) make it longer;
`python -m benchmarks.soak` does, too.
"""

import os
from pathlib import Path

import pytest

from benchmarks.measure import in_new_process
from benchmarks.soak import SoakCounts, simulate

NIGHTS = int(os.environ.get("DARKLODE_SOAK_NIGHTS", "60"))
SEEDS = [int(seed) for seed in os.environ.get("DARKLODE_SOAK_SEEDS", "9").split(",")]
HAPPENED = (
    "file days late",
    "late events",
    "day delivered again",
    "broken rows",
    "unreadable file",
    "nights failed on a file",
    "garbage day",
    "night without a run",
    "killed",
    "refused",
)
"""What must have happened at least once, so that the comparison means something."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_nights_that_go_wrong_end_like_one_run_over_everything(tmp_path: Path, seed: int) -> None:
    result: SoakCounts = in_new_process(simulate, tmp_path, NIGHTS, seed)
    assert (result.different, result.left_over) == ([], [])
    assert result.n_files > 3 * NIGHTS, "days of past months share files"
    assert [kind for kind in HAPPENED if not result.counts[kind]] == []
    assert result.counts["killed"] > NIGHTS / 4
    assert result.states["admitted"] > NIGHTS
    assert result.counts["accepted days"] + result.counts["discarded days"] > 1
