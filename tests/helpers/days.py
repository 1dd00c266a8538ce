"""Days of a small log judged as nights judge them."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date, timedelta

from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.mine.admission.daily_statistics import DAY_FIGURES_STAGE, day_figures
from darklode.pipeline.mine.admission.decisions import Decision
from darklode.pipeline.mine.admission.stage import ADMIT_DAYS, TenantHistory, admit_days
from darklode.schemas.mining import AdmissionSettings, LogSettings
from helpers.runs import execute, read
from helpers.small_log import DOCS, FIRST, Log, Search, impressions

QUERIES = [f"query {number}" for number in range(6)]


def ordinary(number: int, searches: int = 150, tenant: str = "default") -> list[Search]:
    """A day like the others: each query has its documents, and those above are clicked oftener."""
    chance = random.Random(f"{tenant} {number}")
    return [_search(chance, one, tenant, number) for one in range(searches + chance.randint(-8, 8))]


def _search(chance: random.Random, one: int, tenant: str, day: int) -> Search:
    query = chance.randrange(len(QUERIES))
    shown = tuple(DOCS[(query + place) % len(DOCS)] for place in range(4))
    clicked = frozenset(place for place in range(1, 5) if chance.random() < 0.5 / place**2)
    return Search(tenant, f"{day}-{one // 2}", chance.randint(480, 1200), QUERIES[query], shown, clicked)


def days(count: int) -> dict[date, list[Search]]:
    """So many ordinary days."""
    return {FIRST + timedelta(number): ordinary(number) for number in range(count)}


def given(run: Run, log: Log) -> None:
    """The log as a run's `impressions`, a part a day."""

    def ingest(_tables: Tables, output: Output) -> None:
        for day, searches in sorted(log.items()):
            if searches:
                output.write("impressions", impressions(day, searches))

    execute(run, Stage("given_log", 1, (), ("impressions",)), ingest)


def judged(
    run: Run,
    log: Log,
    decided: Mapping[str, list[Decision]] | None = None,
    settings: AdmissionSettings | None = None,
    unread: Iterable[date] = (),
) -> dict[tuple[str, str], str]:
    """A night over the log: the state of each tenant's day."""
    given(run, log)
    read_days = frozenset(str(day) for day in log if day not in set(unread))
    standing = TenantHistory(read_days, decided or {})
    execute(run, DAY_FIGURES_STAGE, lambda tables, output: day_figures(tables, output, LogSettings()))
    execute(run, ADMIT_DAYS, lambda t, o: admit_days(t, o, settings or AdmissionSettings(), standing))
    return {(str(row["date"]), str(row["tenant"])): str(row["state"]) for row in read(run, "log_days")}


def garbage(number: int) -> list[Search]:
    """Other documents for every query, nearly all of them clicked, four times over."""
    chance = random.Random(number)
    shown = [tuple(chance.sample(DOCS, 4)) for _ in range(600)]
    day = [replace(search, session=f"g{one}") for one, search in enumerate(ordinary(number) * 5)][:600]
    return [replace(one, shown=docs, clicked=frozenset({1, 2, 4})) for one, docs in zip(day, shown, strict=True)]
