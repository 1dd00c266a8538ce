"""What a log says of variants: A/B, interleaved lists, and the log as a whole."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.evaluate.online_metrics import ONLINE_STAGE, online
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.mining import LogSettings
from darklode.schemas.tables import TABLES
from helpers.online_log import search
from helpers.runs import execute, put, read

MEASURING = EvaluateSettings(n_resamples=200, permutations=500)


def measured(folder: Path, *searches: list[dict[str, Any]]) -> Run:
    run = Run(str(folder / "run"))
    rows = [row for one in searches for row in one]
    put(run, "impressions", pa.Table.from_pylist(rows, schema=TABLES["impressions"].schema))
    execute(
        run, ONLINE_STAGE, lambda tables, output: online(tables, output, LogSettings(), MEASURING, searches=0, seed=1)
    )
    return run


def values(run: Run, variant: str | None, tenant: str | None = None) -> dict[str, Any]:
    rows = read(run, "online")
    return {str(row["measure"]): row["value"] for row in rows if (row["variant"], row["tenant"]) == (variant, tenant)}


def test_every_measure_of_an_a_b_test_is_that_of_the_hand(tmp_path: Path) -> None:
    run = measured(
        tmp_path,
        search(1, ["x"] * 6, {1}, "one"),
        search(2, ["x"] * 4, set(), "one"),
        search(3, ["y"] * 5, {3, 5}, "two"),
        search(4, ["y"] * 5, {4}, None),
        search(5, [None] * 2, set(), "three"),
    )
    assert values(run, "x") == {
        "click-through": 0.1,
        "searches with a click at 1": 0.5,
        "searches with a click in the first 3": 0.5,
        "abandoned searches": 0.5,
        "searches with fewer than 5 results": 0.5,
        "sessions with a click": 1.0,
    }
    assert values(run, "y")["click-through"] == pytest.approx(0.3)
    assert values(run, "y")["searches with a click in the first 3"] == 0.5
    whole = values(run, None)
    assert whole["abandoned searches"] == pytest.approx(2 / 5)
    assert whole["searches with fewer than 5 results"] == pytest.approx(2 / 5)
    assert whole["sessions with a click"] == pytest.approx(3 / 4)
    sizes = {(row["variant"], row["measure"]): (row["counted"], row["sessions"]) for row in read(run, "online")}
    assert sizes["x", "abandoned searches"] == (2, 1)
    assert sizes["y", "click-through"] == (10, 2)


def test_a_click_in_an_interleaved_list_is_its_teams(tmp_path: Path) -> None:
    mixed: list[str | None] = ["x", "y", "y", "x"]
    run = measured(
        tmp_path,
        search(1, mixed, {1, 4}, "one"),
        search(2, mixed, {2}, "two"),
        search(3, mixed, {1, 2}, "three"),
        search(4, mixed, {3, 1, 4}, "four"),
        search(5, mixed, set(), "five"),
    )
    assert values(run, "x") == {"interleaved lists won": pytest.approx(2.5 / 4)}
    assert values(run, "y") == {"interleaved lists won": pytest.approx(1.5 / 4)}
    (row,) = read(run, "online_pairs")
    assert (row["variant"], row["other"], row["difference"]) == ("y", "x", pytest.approx(-0.25))


def test_a_log_without_an_experiment_has_itself_alone(tmp_path: Path) -> None:
    run = measured(tmp_path, search(1, [None] * 5, {1}, "one"), search(2, [None] * 5, set(), "two", "b"))
    assert {row["variant"] for row in read(run, "online")} == {None}
    assert {row["tenant"] for row in read(run, "online")} == {None, "a", "b"}
    assert values(run, None, "b")["abandoned searches"] == 1.0
    assert not read(run, "online_pairs")


def random_log(seed: int, better: float) -> list[list[dict[str, Any]]]:
    """Forty sessions of five searches; users differ, and variant y's searches are clicked more often by `better`."""
    random, searches = np.random.default_rng(seed), []
    for session in range(40):
        variant, eager = ("x", "y")[session % 2], random.beta(2, 2)
        for number in range(5):
            sure = eager * (1 - better) + better if variant == "y" else eager
            clicked = {1} if random.random() < sure else set()
            searches.append(search(session * 5 + number, [variant] * 5, clicked, f"session {session}"))
    return searches


@pytest.mark.slow
def test_arms_that_do_not_differ_are_rarely_called_different(tmp_path: Path) -> None:
    found = []
    for seed in range(30):
        run = measured(tmp_path / str(seed), *random_log(seed, 0.0))
        found += [row["p"] for row in read(run, "online_pairs") if row["measure"] == "abandoned searches"]
    assert np.mean(np.array(found, float) <= 0.05) <= 0.17
    run = measured(tmp_path / "better", *random_log(1, 0.6))
    (row,) = [row for row in read(run, "online_pairs") if row["measure"] == "abandoned searches"]
    assert row["p"] <= 0.05  # type: ignore[operator]
    assert row["high"] < 0  # type: ignore[operator]


def test_an_arm_of_few_sessions_is_not_certain(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    searches = [search(at, ["x"] * 5, {1} if random.random() < 0.3 else set(), f"x{at}") for at in range(400)]
    searches += [search(400 + at, ["y"] * 5, set(), f"y{at}") for at in range(3)]
    rows = {row["measure"]: row for row in read(measured(tmp_path / "few", *searches), "online_pairs")}
    assert rows["abandoned searches"]["p"] == pytest.approx(
        1 - 3 * 0.3 * 0.7**2, abs=0.06
    )  # all but one click of three
    assert (rows["abandoned searches"]["low"], rows["abandoned searches"]["high"]) == (None, None)
    searches += [search(403 + at, ["y"] * 5, set(), f"y{3 + at}") for at in range(9)]
    rows = {row["measure"]: row for row in read(measured(tmp_path / "alike", *searches), "online_pairs")}
    assert rows["abandoned searches"]["p"] < 0.05  # type: ignore[operator]
    assert rows["abandoned searches"]["low"] is None, "sessions that are all alike have no spread"


def test_p_is_the_share_of_all_assignments_that_differ_as_much(tmp_path: Path) -> None:
    clicked = {"x": [1, 0, 0, 0], "y": [1, 1, 1]}
    searches = [
        search(10 * at + (variant == "y"), [variant] * 5, {1} if yes else set(), f"{variant}{at}")
        for variant, several in clicked.items()
        for at, yes in enumerate(several)
    ]
    run = Run(str(tmp_path / "run"))
    rows = [row for one in searches for row in one]
    put(run, "impressions", pa.Table.from_pylist(rows, schema=TABLES["impressions"].schema))
    given = EvaluateSettings(n_resamples=100, permutations=20_000)
    execute(run, ONLINE_STAGE, lambda tables, output: online(tables, output, LogSettings(), given, searches=0, seed=1))
    (row,) = [row for row in read(run, "online_pairs") if row["measure"] == "abandoned searches"]
    of_all = [1, 0, 0, 0, 1, 1, 1]
    every = [
        abs(sum(of_all[at] for at in some) / 3 - (4 - sum(of_all[at] for at in some)) / 4)
        for some in combinations(range(7), 3)
    ]
    assert row["p"] == pytest.approx(np.mean(np.array(every) >= 0.75 - 1e-9), abs=0.01)
