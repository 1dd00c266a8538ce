"""Nineteen ways in which a day of a search log is garbage, as functions of its rows (`benchmarks.log_shapes.Rows`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.log_shapes import DAY_SECONDS, Rows, SimulatedLog

Garbage = Callable[[Rows, SimulatedLog, int], Rows]
"""Rows of the right day, the log, and the day's number."""
ADDED = 50_000_000
"""Added to ids, so that they are new."""


def _take(rows: Rows, chosen: np.ndarray) -> Rows:
    return {name: column[chosen] for name, column in rows.items()}


def _joined(*parts: Rows) -> Rows:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def doubled(rows: Rows, _log: SimulatedLog, _day: int) -> Rows:
    """Every search twice, the copy under other search and session ids."""
    copy = rows | {name: rows[name] + ADDED for name in ("search", "session")}
    return _joined(rows, copy)


def every_second_missing(rows: Rows, _log: SimulatedLog, _day: int) -> Rows:
    """Every second search is missing."""
    return _take(rows, rows["search"] % 2 == 0)


def unknown_tenant(rows: Rows, _log: SimulatedLog, _day: int) -> Rows:
    """All rows are another tenant's."""
    return rows | {"tenant": rows["tenant"] + 77}


def positions_shifted(rows: Rows, _log: SimulatedLog, _day: int) -> Rows:
    """Every position is one more."""
    return rows | {"position": rows["position"] + 1}


def clicks_randomised(rows: Rows, _log: SimulatedLog, day: int) -> Rows:
    """As many clicks, on random rows."""
    return rows | {"clicked": np.random.default_rng(day).permutation(rows["clicked"])}


def ids_remapped(rows: Rows, _log: SimulatedLog, day: int) -> Rows:
    """Each document has another one's id."""
    documents = np.unique(rows["doc"])
    names = np.random.default_rng(day).permutation(documents)
    return rows | {"doc": names[np.searchsorted(documents, rows["doc"])]}


def truncated(rows: Rows, _log: SimulatedLog, _day: int) -> Rows:
    """The day ends when 60 % of its rows are written."""
    order = np.argsort(rows["second"], kind="stable")
    return _take(rows, np.sort(order[: int(0.6 * len(order))]))


def hours_shifted(rows: Rows, _log: SimulatedLog, _day: int) -> Rows:
    """All times are seven hours late."""
    return rows | {"second": (rows["second"] + 7 * 3600) % DAY_SECONDS}


def rows_duplicated(rows: Rows, _log: SimulatedLog, _day: int) -> Rows:
    """All rows twice, with the same ids."""
    rows = rows | {"event": np.arange(len(rows["query"]))}
    return _joined(rows, rows)


def bot_flood(rows: Rows, log: SimulatedLog, day: int) -> Rows:
    """As many searches again, by five sessions that click nothing."""
    flood = SimulatedLog(log.shape, log.seed + 1_000).day(day)
    flood |= {"search": flood["search"] + ADDED, "session": ADDED + flood["search"] % 5}
    return _joined(rows, flood | {"clicked": np.zeros_like(flood["clicked"]), "tenant": flood["tenant"] * 0})


def query_flood(rows: Rows, log: SimulatedLog, day: int) -> Rows:
    """As many searches again, all for one query."""
    flood = SimulatedLog(log.shape, log.seed + 1_000).day(day)
    flood |= {"search": flood["search"] + ADDED, "session": flood["session"] + ADDED}
    shift = 37 - flood["query"]
    return _joined(rows, flood | {"query": flood["query"] + shift, "doc": flood["doc"] + 3 * shift})


def sessions_merged(rows: Rows, _log: SimulatedLog, _day: int) -> Rows:
    """Twenty users share a session id."""
    return rows | {"session": rows["session"] // 20}


def sessions_lost(rows: Rows, _log: SimulatedLog, _day: int) -> Rows:
    """No row has a session id."""
    return rows | {"session": np.full_like(rows["session"], -1)}


def yesterdays_file(_rows: Rows, log: SimulatedLog, day: int) -> Rows:
    """The rows of the day before, with the day's date."""
    return log.day(day - 1)


def load_test(rows: Rows, _log: SimulatedLog, day: int) -> Rows:
    """A load test: four queries, three documents, clicks at random."""
    chance = np.random.default_rng(day)
    query = 9_000_000 + rows["search"] % 4
    clicked = chance.random(len(query)) < 0.3
    return rows | {"query": query, "doc": 9_000_000 + rows["position"] % 3, "clicked": clicked}


def null_positions(rows: Rows, _log: SimulatedLog, _day: int) -> Rows:
    """No row has a position."""
    return rows | {"position": np.full_like(rows["position"], -1)}


def other_catalogue(rows: Rows, _log: SimulatedLog, _day: int) -> Rows:
    """Queries and documents of another language."""
    return rows | {"query": rows["query"] + ADDED, "doc": rows["doc"] + 3 * ADDED}


def columns_swapped(rows: Rows, _log: SimulatedLog, _day: int) -> Rows:
    """Query and document are swapped."""
    return rows | {"query": rows["doc"] + ADDED, "doc": rows["query"] + ADDED}


def clicks_lost(rows: Rows, _log: SimulatedLog, _day: int) -> Rows:
    """No row is clicked."""
    return rows | {"clicked": np.zeros_like(rows["clicked"])}


KINDS: Mapping[str, Garbage] = {
    "day doubled under new ids": doubled,
    "every second search missing": every_second_missing,
    "relabelled with an unknown tenant": unknown_tenant,
    "positions shifted by one": positions_shifted,
    "clicks randomised": clicks_randomised,
    "document ids remapped": ids_remapped,
    "truncated at 60 %": truncated,
    "times shifted by seven hours": hours_shifted,
    "rows duplicated": rows_duplicated,
    "bot flood": bot_flood,
    "flood of one query": query_flood,
    "sessions merged": sessions_merged,
    "sessions lost": sessions_lost,
    "yesterday's file again": yesterdays_file,
    "test data": load_test,
    "positions null": null_positions,
    "another catalogue": other_catalogue,
    "columns swapped": columns_swapped,
    "clicks lost": clicks_lost,
}
