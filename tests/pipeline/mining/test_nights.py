"""Night by night, late, twice or at once: the triplets are the same, to the byte."""

import random
from pathlib import Path

import pytest
from small_log import mine, random_log

from pipeline.artifacts import Run


def files(run: Run, *tables: str) -> dict[str, bytes | None]:
    names = [name for table in tables for name in run.store.sizes(f"tables/{table}", recursive=True)]
    return {name: run.store.read(name) for name in names}


OUTCOME = ("mined_pairs", "triplets", "log_queries")


@pytest.mark.parametrize("number", range(12))
def test_nights_end_like_one_run_over_all_days(tmp_path: Path, number: int) -> None:
    log = random_log(number)
    once, nightly = Run(str(tmp_path / "once")), Run(str(tmp_path / "nightly"))
    mine(once, log)
    order = list(log)
    if number % 3:
        random.Random(number).shuffle(order)
    for seen in range(1, len(order) + 1):
        mine(nightly, {day: log[day] for day in order[:seen]})
    assert files(nightly, *OUTCOME) == files(once, *OUTCOME)
    assert once.tables("triplets").rows("triplets") > 50
