"""The made-up log of `soak`: files by local day in Berlin's time, delivered late, again, damaged or full of garbage.

Two tenants search for combinations of twelve words. A query has eight documents, of which four are shown in a noisy
order; the first ones are clicked more often. Everything depends on the seed alone.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path

TENANTS = ("default", "default", "tern")
WORDS = "reset password invoice refund export report token webhook login shipping address delete".split()
DOCUMENTS, CANDIDATES, SHOWN = 36, 8, 4
SEARCHES = 48
TIME_ZONE = "Europe/Berlin"
HEADER = "event_id,tenant,session_id,timestamp,query,doc_id,position,clicked"
BROKEN_ROWS = (
    "x,default,s,not a time,reset password,d1,1,true",
    "x,default,s,2026-99-01T00:00:00,reset password,d1,1,true",
    'x,default,s,{time},"an open quote,d1,1,true',
    "x,default,s,{time},,d1,1,false",
    "too,few",
    "x,default,s,{time},reset password,d1,one,perhaps",
    "x,default,s,{time},reset \ufffd\x01 password,,1,true",
)


@dataclass(frozen=True)
class LoggedSearch:
    """A search as it is logged: local time, query, documents by position, and which were clicked."""

    search_id: str
    tenant: str
    session_id: str
    time: datetime
    query: str
    documents: Sequence[str]
    clicked: frozenset[int]

    def rows(self) -> list[str]:
        """Its rows in the CSV file, one for each document."""
        return [
            f"{self.search_id}-{position},{self.tenant},{self.session_id},{self.time.isoformat()},{self.query},"
            f"{document},{position},{str(position in self.clicked).lower()}"
            for position, document in enumerate(self.documents, 1)
        ]


def write_documents(file: Path) -> None:
    """Write both tenants' documents."""
    rows = [
        {"tenant": tenant, "doc_id": f"d{number}", "title": f"{WORDS[number % len(WORDS)]} {number}", "text": text}
        for tenant in sorted(set(TENANTS))
        for number in range(DOCUMENTS)
        for text in [f"How {WORDS[number % 12]} and {WORDS[number * 5 % 12]} work for {tenant}. " * 4]
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def ordinary_day(seed: int, day: date, version: int = 0) -> list[LoggedSearch]:
    """A day's searches; another version is the same day with a tenth of the searches missing and other clicks."""
    chance = random.Random(f"{seed} {day}")
    searches = [_search(chance, day, number) for number in range(SEARCHES + chance.randint(-4, 4))]
    if not version:
        return searches
    chance = random.Random(f"{seed} {day} {version}")
    return [
        replace(search, clicked=_clicks(chance)) if chance.random() < 0.2 else search
        for search in searches
        if chance.random() > 0.1
    ]


def _search(chance: random.Random, day: date, number: int) -> LoggedSearch:
    # Every third search is one of the last days' new queries; minutes around the clock change are searched, too.
    tail = day.toordinal() % 97 if chance.random() < 0.1 else int(12 * chance.random() ** 2)
    words = [WORDS[tail % 12], WORDS[(tail * 5 + 1) % 12], WORDS[(tail * 7 + 3) % 12]][: 2 + tail % 2]
    query = " ".join(dict.fromkeys(words))
    order = sorted(range(CANDIDATES), key=lambda place: place + 3 * chance.random())[:SHOWN]
    documents = [f"d{(tail * 11 + place * 5) % DOCUMENTS}" for place in order]
    hour = 2 if chance.random() < 0.05 else chance.randint(7, 23)
    time = datetime(day.year, day.month, day.day, hour, chance.randrange(60), chance.randrange(60))
    tenant, session = chance.choice(TENANTS), f"{day:%m%d}-{number // 3}"
    return LoggedSearch(f"{day:%m%d}-{number}", tenant, session, time, query, documents, _clicks(chance))


def _clicks(chance: random.Random) -> frozenset[int]:
    return frozenset(place for place in range(1, SHOWN + 1) if chance.random() < 0.6 / place)


def garbage_day(seed: int, day: date) -> list[LoggedSearch]:
    """Five times as many searches, with documents at random, nearly all of which are clicked."""
    chance = random.Random(f"garbage {seed} {day}")
    searches = [
        replace(search, search_id=f"g{copy}-{search.search_id}", session_id=f"g{copy}-{search.session_id}")
        for copy in range(5)
        for search in ordinary_day(seed, day)
    ]
    names = [f"d{number}" for number in range(DOCUMENTS)]
    return [replace(one, documents=chance.sample(names, SHOWN), clicked=frozenset({1, 2, 4})) for one in searches]


def late_events(seed: int, day: date, delay: int) -> list[LoggedSearch]:
    """Searches of an earlier day that are logged with this one; more than two days late they are rejected."""
    earlier = day - timedelta(delay)
    searches = [_search(random.Random(f"late {seed} {day} {number}"), earlier, 900 + number) for number in range(4)]
    return [replace(search, search_id=f"late-{day:%m%d}-{search.search_id}") for search in searches]


def deliver(log: Path, day: date, searches: Sequence[LoggedSearch], broken: Sequence[str] = ()) -> None:
    """Write a day's file, replacing one that was delivered before."""
    time = f"{day}T12:00:00"
    rows = [row for search in searches for row in search.rows()]
    rows += [row.replace("{time}", time) for row in broken]
    _write(log, day, "\n".join([HEADER, *rows, ""]).encode())


def deliver_unreadable(log: Path, day: date) -> None:
    """Write a file that is no CSV with the columns of a log, as after a broken export."""
    _write(log, day, b"<html>502 Bad Gateway</html>\n" * 20)


def _write(log: Path, day: date, data: bytes) -> None:
    file = log / f"date={day}" / "impressions.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = log.parent / "delivery"
    temporary.write_bytes(data)
    temporary.replace(file)
