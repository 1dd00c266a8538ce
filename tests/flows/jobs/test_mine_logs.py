"""Whichever way the log's days come in, the tables end up the same as those of one run over all of them."""

import random
import shutil
from collections.abc import Callable, Sequence
from datetime import date
from functools import cache
from pathlib import Path

import pytest

from darklode.flows.config import load_settings
from darklode.pipeline.base.artifacts import Run
from helpers.commands import mine_without_prefect, tables_of
from helpers.runs import SAMPLE

DAYS = 10
ALL = range(1, DAYS + 1)
Nights = Sequence[Sequence[int]]
Once = Callable[..., Path]


def day(number: int) -> date:
    return date(2026, 3, number)


def nights(folder: Path, *orders: Sequence[int], assignments: Sequence[str] = (), logs: Path = SAMPLE) -> Path:
    """A run that reads some days a night."""
    settings = load_settings(assignments=assignments)
    for read in orders:
        mine_without_prefect(folder, settings, [day(number) for number in read], logs=logs)
    return folder


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """The run that reads all days of the sample at once, made when it is first asked for."""

    @cache
    def run(*assignments: str) -> Path:
        folder = tmp_path_factory.mktemp("once") / "run"
        mine_without_prefect(folder, load_settings(assignments=assignments))
        return folder

    return run


def sample_log(folder: Path) -> Path:
    """A copy of the sample's log that a test may change."""
    return Path(shutil.copytree(SAMPLE / "impressions", folder / "impressions"))


def file_of(log: Path, number: int) -> Path:
    return log / f"date={day(number)}" / "impressions.csv"


ORDERS: dict[str, Nights] = {
    "day by day": [[number] for number in ALL],
    "a day late": [[1, 2, 3], [5], [4], range(6, 11)],
    "the first day last": [range(2, 11), [1]],
    "days twice": [range(1, 7), [2, 6], range(5, 11), [10]],
    "another order": [[10], range(7, 10), range(1, 4), range(4, 7)],
}


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_nights_end_like_one_run_over_all_days(once: Once, tmp_path: Path, order: str) -> None:
    ours, whole = tables_of(nights(tmp_path / "run", *ORDERS[order])), tables_of(once())
    assert ours == whole
    assert len([name for name in whole if name.startswith("triplets/tenant-")]) > 2 * DAYS


OTHERS = {
    "places and skips": ["click.model=coec", "click.min_click_ratio=1.5", "click.negatives=skipped"],
    "a ranker": ["relevance.ranker=judge", "mining.merge=all", "click.negative_window=period"],
    "a test period": ["mining.test_from=2026-03-08"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_other_settings_change_the_triplets_and_not_that(once: Once, tmp_path: Path, name: str) -> None:
    given = OTHERS[name]
    run = nights(tmp_path / "run", range(1, 4), [5, 8], [4, 6, 7, 9, 10], assignments=given)
    assert tables_of(run) == tables_of(once(*given))
    assert tables_of(run) != tables_of(once())


@pytest.mark.slow
def test_nothing_of_the_test_period_is_mined_and_what_is_called_unseen_is_new(once: Once) -> None:
    tables = Run(str(once(*OTHERS["a test period"]))).tables()
    counted = """
        SELECT (SELECT max(date) FROM triplets) AS mined, (SELECT min(date) FROM mined_test) AS tested,
               (SELECT count(*) FROM mined_test JOIN triplets USING (tenant, query_id) WHERE kind <> 'seen') AS shared,
               (SELECT count(DISTINCT query_id) FROM mined_test WHERE kind = 'variant') AS variants,
               (SELECT count(DISTINCT query_id) FROM mined_test WHERE kind = 'unseen') AS unseen,
               (SELECT count(*) FROM mined_test ANTI JOIN mined_test_pool USING (tenant, doc_id)) AS without
    """
    found = tables.sql(counted).to_pylist()[0]
    assert (found["mined"], found["tested"], found["shared"], found["without"]) == (day(7), day(8), 0, 0)
    assert min(found["variants"], found["unseen"]) > 20


@pytest.mark.slow
def test_a_day_that_changed_is_mined_anew(tmp_path: Path) -> None:
    log = sample_log(tmp_path)
    run = nights(tmp_path / "run", range(1, 8), logs=log)
    head, *rows = file_of(log, 3).read_text().splitlines()
    swapped = [row.replace("true", "was").replace("false", "true", number % 5 == 0) for number, row in enumerate(rows)]
    changed = [row.replace(",was", ",false") for row in swapped[: len(rows) * 2 // 3]]
    file_of(log, 3).write_text("\n".join([head, *changed]) + "\n")
    before = tables_of(run)
    assert tables_of(nights(run, [2], [8], logs=log)) != before
    assert tables_of(nights(run, ALL, logs=log)) == tables_of(nights(tmp_path / "fresh", ALL, logs=log))


@pytest.mark.slow
def test_a_day_that_is_deleted_after_it_was_read_stays(tmp_path: Path) -> None:
    log = sample_log(tmp_path)
    run = nights(tmp_path / "run", ALL, logs=log)
    before = tables_of(run)
    for number in (1, 4, 10):
        shutil.rmtree(file_of(log, number).parent)
    assert mine_without_prefect(run, load_settings(), logs=log) == []
    assert mine_without_prefect(run, load_settings(), [day(5)], logs=log) == []
    assert tables_of(run) == before
    assert mine_without_prefect(run, load_settings(assignments=["click.min_clicks=2"]), logs=log)
    assert Run(str(run)).tables("impressions").rows("impressions") > 12_000


@pytest.mark.slow
def test_events_that_come_in_late_count_for_their_own_day(once: Once, tmp_path: Path) -> None:
    log = sample_log(tmp_path)
    head, *rows = file_of(log, 3).read_text().splitlines()
    with file_of(log, 5).open("a") as file:
        file.write("".join(f"{row}\n" for row in rows[-60:]))
    file_of(log, 3).write_text("\n".join([head, *rows[:-60]]) + "\n")
    run = nights(tmp_path / "run", range(1, 5), [5], range(6, 11), logs=log)
    fresh = nights(tmp_path / "fresh", ALL, logs=log)
    assert tables_of(run) == tables_of(fresh)
    per_day = "SELECT CAST(timestamp AS DATE) AS day, count(*) AS n FROM impressions GROUP BY day ORDER BY day"
    shown = [Run(str(one)).tables("impressions").sql(per_day).to_pylist() for one in (run, once())]
    assert shown[0] == shown[1]


def garbage(log: Path, number: int) -> None:
    """A day of eight copies of the sixth, with other documents, half of them clicked."""
    chance = random.Random(number)
    head, *rows = file_of(log, 6).read_text().splitlines()
    cells = [(*row.split(",", 4)[:4], *row.split(",", 4)[4].rsplit(",", 3)) for row in rows]
    shown = [cell[5] for cell in cells]
    made = []
    for copy in range(8):
        for event, tenant, session, time, query, _doc, place, _clicked in cells:
            ids = f"{copy}{event},{tenant},{copy}{session},{day(number)}{time[10:]}"
            made.append(f"{ids},{query},{chance.choice(shown)},{place},{chance.choice(('true', 'false'))}")
    file_of(log, number).parent.mkdir()
    file_of(log, number).write_text("\n".join([head, *made]) + "\n")


@pytest.mark.slow
def test_a_held_day_leaves_no_trace_in_later_nights(once: Once, tmp_path: Path) -> None:
    """Ten good days with garbage after the eighth, in one night and in several: as if it had never come."""
    log = sample_log(tmp_path)
    garbage(log, 11)
    own = ("impressions/", "day_", "log_days/", "rejects/", "funnel/")

    def made(run: Path) -> dict[str, object]:
        return {name: rows for name, rows in tables_of(run).items() if not name.startswith(own)}

    run = nights(tmp_path / "run", range(1, 9), [11], [9], [10], logs=log)
    states = Run(str(run)).tables("log_days").sql("SELECT DISTINCT date, state FROM log_days WHERE state <> 'admitted'")
    assert states.to_pylist() == [{"date": day(11), "state": "held"}]
    assert made(run) == made(once())
    assert made(nights(tmp_path / "at once", range(1, 12), logs=log)) == made(run)
