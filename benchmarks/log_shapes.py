"""Made-up search logs of ten shapes, a day at a time: their volumes, weekdays, trends, new queries and tenants.

A day is simulated in NumPy: sessions start by an hour profile and have a geometric number of searches; queries are
drawn from a Zipf distribution of which a share is replaced by queries of the last days; a query shows its own documents
in a slightly noisy order; a user examines position r with probability r^-0.65 and clicks one of the two best documents
with probability 0.5, another one with 0.05. The log is the same for the same shape, size and seed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.schemas.tables import TABLES

FIRST = date(2026, 1, 5)  # a Monday
SHOWN = 6
"""Results per search."""
DAY_SECONDS = 86_400
OFFICE_HOURS = np.array([1, 1, 1, 1, 1, 2, 5, 12, 22, 26, 26, 24, 20, 22, 25, 24, 20, 14, 8, 5, 4, 3, 2, 1], float)
EVENING_HOURS = np.array([6, 3, 2, 1, 1, 2, 4, 7, 9, 11, 12, 13, 14, 13, 13, 14, 15, 17, 20, 23, 25, 24, 18, 11], float)

Column = NDArray[Any]
Rows = dict[str, Column]
"""Impressions of a day: tenant, search, session (-1: none), second of the day, query, doc, position (-1: none),
clicked. Ids are numbers; `impressions` makes them strings."""


@dataclass(frozen=True)
class LogShape:
    """How a log's days differ.

    Attributes:
        searches: searches on an average first day.
        weekdays: factor of each weekday, Monday first.
        growth: relative growth per day.
        noise: standard deviation of the logarithm of a day's volume.
        season: amplitude of a yearly wave of the volume, 60 days from its lowest to its highest day.
        new_share: share of searches for queries of the last five days.
        tail: exponent of the query distribution; smaller is flatter.
        queries: number of lasting queries.
        tenants: share of each tenant.
        campaign_share: share of the days with a campaign, which adds 30 to 120 % searches for five queries.
        hours: relative number of sessions by hour.
        clicks: factor of the click probability.
    """

    name: str
    searches: float
    weekdays: tuple[float, ...] = (1, 1, 1, 1, 1, 1, 1)
    growth: float = 0.0
    noise: float = 0.06
    season: float = 0.0
    new_share: float = 0.02
    tail: float = 0.9
    queries: int = 3000
    tenants: tuple[float, ...] = (1.0,)
    campaign_share: float = 0.0
    hours: tuple[float, ...] = tuple(EVENING_HOURS)
    clicks: float = 1.0


OFFICE = tuple(OFFICE_HOURS)
SHAPES = (
    LogShape("shop", 1600, (0.95, 0.95, 0.97, 1, 1.05, 1.2, 1.25)),
    LogShape("B2B", 1000, (1.05, 1.1, 1.1, 1.05, 0.9, 0.11, 0.11), hours=OFFICE, noise=0.07),
    LogShape("growing", 300, (1, 1, 1, 1, 1.05, 1.1, 1.1), growth=0.03, new_share=0.05),
    LogShape("tiny", 160, (1, 1, 1, 1, 1, 0.8, 0.8), queries=400, hours=OFFICE),
    LogShape("campaigns", 1200, (1, 1, 1, 1, 1.1, 1.2, 1.1), campaign_share=0.12, noise=0.08),
    LogShape("news", 2500, (1.05, 1.05, 1, 1, 1, 0.8, 0.85), noise=0.14, new_share=0.4),
    LogShape("support", 600, (1.35, 1.15, 1.05, 1, 0.9, 0.4, 0.35), hours=OFFICE, noise=0.1, queries=1200),
    LogShape("seasonal", 1200, (1, 1, 1, 1, 1.05, 1.15, 1.1), season=0.5, new_share=0.06),
    LogShape("shrinking", 2500, (1.1, 1.1, 1.05, 1, 1, 0.7, 0.7), growth=-0.025),
    LogShape(
        "tenants", 2500, (1.1, 1.1, 1.1, 1, 0.9, 0.5, 0.5), tenants=tuple(1 / n for n in range(1, 13)), noise=0.08
    ),
)
CHOICE_SHAPES = ("shop", "B2B", "growing", "tiny", "campaigns")
"""The shapes on which constants were chosen; the others only report."""


def shape_of_size(shape: LogShape, searches: float, day: int) -> LogShape:
    """The shape with so many searches on a day, apart from weekday and noise."""
    return replace(shape, searches=searches / np.exp(np.log1p(shape.growth) * day))


class SimulatedLog:
    """A log of a shape.

    Args:
        shape: the shape.
        seed: of all draws.
    """

    def __init__(self, shape: LogShape, seed: int) -> None:
        self.shape = shape
        self.seed = seed
        weights = 1 / (np.arange(shape.queries) + 2.7) ** shape.tail
        self._ends = np.cumsum(weights) / weights.sum()

    def day(self, number: int, *, launch_share: float = 0.0) -> Rows:
        """Impressions of a day.

        Args:
            number: days since the first one.
            launch_share: share of the searches for 40 products that were launched.
        """
        chance = np.random.default_rng([self.seed, number])
        shape = self.shape
        level = np.log(shape.searches) + number * np.log1p(shape.growth) + np.log(shape.weekdays[number % 7])
        level += shape.season * -np.cos(np.pi * number / 60) + shape.noise * chance.standard_normal()
        tenants = np.array(shape.tenants) / sum(shape.tenants)
        size = np.exp(level)
        parts = [
            self._searches(chance, number, tenant, chance.poisson(size * share / 2.0), launch_share)
            for tenant, share in enumerate(tenants)
        ]
        if shape.campaign_share and chance.random() < shape.campaign_share:
            parts.append(self._campaign(chance, number, int(size * chance.uniform(0.3, 1.2))))
        searches = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return self._results(chance, searches)

    def _searches(
        self, chance: np.random.Generator, number: int, tenant: int, sessions: int, launch_share: float
    ) -> Rows:
        """Searches of a tenant's sessions, two on average."""
        lengths = chance.geometric(0.5, sessions)
        n = int(lengths.sum())
        hours = np.array(self.shape.hours)
        start = chance.choice(24, sessions, p=hours / hours.sum()) * 3600 + chance.integers(0, 3600, sessions)
        session = np.repeat(np.arange(sessions), lengths)
        step = np.arange(n) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        second = np.minimum(start[session] + step * 40 + chance.integers(0, 30, n), DAY_SECONDS - 1)
        query = np.searchsorted(self._ends, chance.random(n))
        is_new = chance.random(n) < self.shape.new_share
        born = number - chance.geometric(0.5, n) + 1  # most searches for a new query are made on its first day
        query = np.where(is_new, 1_000_000 + np.maximum(born, -20) * 1000 + chance.integers(0, 150, n), query)
        query = np.where(chance.random(n) < launch_share, 5_000_000 + chance.integers(0, 40, n), query)
        return {
            "tenant": np.full(n, tenant),
            "session": session + tenant * 1_000_000,
            "second": second,
            "query": query,
        }

    def _campaign(self, chance: np.random.Generator, number: int, n: int) -> Rows:
        """Searches that a campaign adds: five queries, of which two are new."""
        queries = np.concatenate([chance.integers(0, 300, 3), 7_000_000 + number * 10 + np.arange(2)])
        hours = np.array(self.shape.hours)
        second = chance.choice(24, n, p=hours / hours.sum()) * 3600 + chance.integers(0, 3600, n)
        session = 900_000 + np.arange(n) // 2
        query = chance.choice(queries, n)
        return {"tenant": np.zeros(n, int), "session": session, "second": second, "query": query}

    def _results(self, chance: np.random.Generator, searches: Rows) -> Rows:
        """What each search shows, and the clicks."""
        n = len(searches["query"])
        order = np.argsort(np.arange(SHOWN + 2) + chance.normal(0, 0.35, (n, SHOWN + 2)), axis=1)[:, :SHOWN]
        doc = searches["query"][:, None] * 3 + order  # neighbouring queries share documents
        position = np.tile(np.arange(1, SHOWN + 1), (n, 1))
        examined = chance.random((n, SHOWN)) < position**-0.65
        clicked = examined & (chance.random((n, SHOWN)) < self.shape.clicks * np.where(order < 2, 0.5, 0.05))
        rows = {name: np.repeat(column, SHOWN) for name, column in searches.items()}
        rows["search"] = np.repeat(np.arange(n), SHOWN)
        return rows | {"doc": doc.ravel(), "position": position.ravel(), "clicked": clicked.ravel()}


def impressions(number: int, rows: Rows) -> pa.Table:
    """Rows of the table `impressions` of a day."""
    n = len(rows["query"])
    midnight = datetime.combine(FIRST + timedelta(number), datetime.min.time(), UTC)
    second = rows["second"].astype("timedelta64[s]").astype("timedelta64[us]")
    times = np.datetime64(midnight.replace(tzinfo=None), "us") + second
    null_sessions, null_positions = pa.array(rows["session"] < 0), pa.array(rows["position"] < 0)
    search = _strings(f"{number}-", rows["search"])
    columns = {
        "tenant": _strings("tenant", rows["tenant"]),
        "event_id": _strings(f"{number}-", rows.get("event", np.arange(n))),
        "search_id": search,
        "session_id": pc.if_else(null_sessions, pa.scalar(None, pa.string()), _strings(f"{number}-s", rows["session"])),
        "timestamp": pa.array(times, pa.timestamp("us", tz="UTC")),
        "query_id": _strings("q", rows["query"]),
        "query": _strings("query ", rows["query"]),
        "doc_id": _strings("d", rows["doc"]),
        "position": pc.if_else(null_positions, pa.scalar(None, pa.int32()), pa.array(rows["position"], pa.int32())),
        "clicked": pa.array(rows["clicked"]),
    }
    return TABLES["impressions"].rows(columns)


def _strings(prefix: str, numbers: Column) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")
