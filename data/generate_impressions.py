"""Simulate the click log of the sample data.

Nobody has ever searched the documentation of Pelagia: product, queries and
people are invented. This program plays a small search engine and its users, so
that the sample contains impressions and clicks of the usual form. It reads

* ``data/sample/documents`` -- the articles,
* ``data/sample_needs.csv`` -- search needs written by hand, with the article
  that answers each of them,

and writes one file per day below ``data/sample/impressions``, with one row per
document that was shown. The same seed always gives the same bytes.

Run it from anywhere::

    python data/generate_impressions.py
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

DATA = Path(__file__).resolve().parent
FIRST_DAY = date(2026, 3, 1)
DAYS = 10
SEED = 20260301

# How many searches each tenant makes in the ten days.
SEARCHES = {"default": 1080, "tern": 270}

# Relative number of sessions in each hour of the day (UTC).
HOUR_WEIGHTS = [1, 1, 1, 1, 1, 2, 4, 8, 12, 14, 14, 11, 8, 12, 14, 13, 11, 8, 6, 5, 4, 3, 2, 0]
WEEKEND_FACTOR = 0.4

ZIPF_EXPONENT = 0.85
MIN_SHOWN, MAX_SHOWN = 8, 10
RANK_NOISE = 0.30  # standard deviation, as a share of the best lexical score
ENGINE_KNOWS = 0.3  # how often the engine recognises the right article by other means
ENGINE_BONUS = 0.4  # what that adds, as a share of the best lexical score

EXAMINATION_DECAY = 0.65  # a user looks at rank r with probability r ** -decay
CLICK_RELEVANT = 0.80
CLICK_SAME_FOLDER = 0.10
CLICK_OTHER = 0.05
STOP_AFTER_SUCCESS = 0.75
SEARCH_AGAIN_AFTER_FAILURE = 0.45

HEADER = [
    "event_id",
    "tenant",
    "session_id",
    "timestamp",
    "query",
    "doc_id",
    "position",
    "clicked",
]
WORD = re.compile(r"[a-z0-9_]+(?:-[0-9]+)?")
TERN_MARK = re.compile(r"^tenant:\s*tern\s*$|<meta name=\"tenant\" content=\"tern\">", re.MULTILINE)
TITLE = re.compile(r"^title:\s*(.+)$|^#\s+(.+)$|<title>(.+?)</title>", re.MULTILINE)


@dataclass(frozen=True)
class Need:
    """One wording of a search need, and the article that answers it."""

    query: str
    doc_id: str


@dataclass(frozen=True)
class Search:
    """One query of one session."""

    session_id: str
    moment: datetime
    need: Need
    text: str


@dataclass(frozen=True)
class Shown:
    """One row of the log before it gets its id."""

    doc_id: str
    position: int
    clicked: bool


def words(text: str) -> list[str]:
    """Split a text into lower-case words; error codes stay in one piece."""
    return [stem(word) for word in WORD.findall(text.lower())]


def stem(word: str) -> str:
    """Remove a plural or -ing ending, roughly."""
    for ending in ("ing", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word


class Engine:
    """A BM25 search engine over the articles of one tenant."""

    def __init__(self, texts: dict[str, str]) -> None:
        """Count the words of every article; those of the title count twice."""
        self.doc_ids = sorted(texts)
        self.counts = {doc_id: self._count(texts[doc_id]) for doc_id in self.doc_ids}
        self.lengths = {doc_id: sum(counts.values()) for doc_id, counts in self.counts.items()}
        self.mean_length = sum(self.lengths.values()) / len(self.lengths)
        self.frequency = Counter(word for counts in self.counts.values() for word in counts)

    @staticmethod
    def _count(text: str) -> Counter[str]:
        counts = Counter(words(text))
        title = TITLE.search(text)
        if title is not None:
            for word in words(next(group for group in title.groups() if group)):
                counts[word] += 1
        return counts

    def scores(self, query: str) -> dict[str, float]:
        """Score every article for a query."""
        terms = words(query)
        return {doc_id: self._score(doc_id, terms) for doc_id in self.doc_ids}

    def _score(self, doc_id: str, terms: Sequence[str]) -> float:
        counts = self.counts[doc_id]
        norm = 1.2 * (0.4 + 0.6 * self.lengths[doc_id] / self.mean_length)
        total = 0.0
        for term in terms:
            seen = counts.get(term, 0)
            if seen:
                holders = self.frequency[term]
                rarity = math.log(1 + (len(self.doc_ids) - holders + 0.5) / (holders + 0.5))
                total += rarity * seen * 2.2 / (seen + norm)
        return total


def load_documents(root: Path) -> dict[str, dict[str, str]]:
    """Read all articles, as tenant -> document id -> text."""
    found: dict[str, dict[str, str]] = {"default": {}, "tern": {}}
    for path in sorted((root / "documents").rglob("*")):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            tenant = "tern" if TERN_MARK.search(text) else "default"
            found[tenant][path.relative_to(root).as_posix()] = text
    return found


def load_needs(path: Path) -> dict[str, list[Need]]:
    """Read the search needs, as tenant -> list."""
    found: dict[str, list[Need]] = {}
    with path.open(encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle):
            tenant = row["tenant"] or "default"
            found.setdefault(tenant, []).append(Need(row["query"], row["doc_id"]))
    return found


def zipf_weights(count: int) -> list[float]:
    """Weights of the first, second, ... most popular query."""
    return [1.0 / (rank**ZIPF_EXPONENT) for rank in range(1, count + 1)]


def misspell(text: str, rng: random.Random) -> str:
    """Swap, drop or double one letter of a longer word."""
    places = [m.start() for m in re.finditer(r"[a-z](?=[a-z]{2})", text)]
    if not places:
        return text
    at = rng.choice(places) + 1
    kind = rng.randrange(3)
    if kind == 0:
        return text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    if kind == 1:
        return text[:at] + text[at + 1 :]
    return text[:at] + text[at] + text[at:]


def vary(text: str, rng: random.Random) -> str:
    """Write a query as another person would type it: case, question mark, typing errors."""
    draw = rng.random()
    if draw < 0.10:
        return text[:1].upper() + text[1:]
    if draw < 0.16:
        return text.lower()
    if draw < 0.19:
        return text.upper()
    if draw < 0.24:
        return text.rstrip("?") + "?"
    if draw < 0.34:
        return misspell(text, rng)
    return text


def pick_moment(rng: random.Random) -> datetime:
    """Choose when a session begins: by day of the week and hour of the day."""
    days = [FIRST_DAY + timedelta(days=number) for number in range(DAYS)]
    weights = [WEEKEND_FACTOR if day.weekday() >= 5 else 1.0 for day in days]
    day = rng.choices(days, weights)[0]
    hour = rng.choices(range(24), HOUR_WEIGHTS)[0]
    return datetime(day.year, day.month, day.day, hour, rng.randrange(60), rng.randrange(60), tzinfo=UTC)


def rank(engine: Engine, need: Need, text: str, rng: random.Random) -> list[str]:
    """Return the articles that the simulated engine shows, best first."""
    scores = engine.scores(text)
    best = max(*scores.values(), 1.0)
    noisy = {doc_id: score + rng.gauss(0.0, RANK_NOISE * best) for doc_id, score in scores.items()}
    if rng.random() < ENGINE_KNOWS:
        noisy[need.doc_id] += ENGINE_BONUS * best
    ordered = sorted(noisy, key=lambda doc_id: (-noisy[doc_id], doc_id))
    return ordered[: rng.randint(MIN_SHOWN, MAX_SHOWN)]


def attraction(doc_id: str, need: Need) -> float:
    """Probability of a click on an article that the user has looked at."""
    if doc_id == need.doc_id:
        return CLICK_RELEVANT
    if doc_id.rsplit("/", 1)[0] == need.doc_id.rsplit("/", 1)[0]:
        return CLICK_SAME_FOLDER
    return CLICK_OTHER


def browse(results: Sequence[str], need: Need, rng: random.Random) -> list[Shown]:
    """Let a user go through a result list, with a bias for the first positions."""
    shown = []
    finished = False
    for position, doc_id in enumerate(results, start=1):
        looked = rng.random() < position**-EXAMINATION_DECAY
        wanted = rng.random() < attraction(doc_id, need)
        clicked = looked and wanted and not finished
        shown.append(Shown(doc_id, position, clicked))
        if clicked and doc_id == need.doc_id:
            finished = rng.random() < STOP_AFTER_SUCCESS
    return shown


def simulate(
    tenant: str, engine: Engine, needs: Sequence[Need], rng: random.Random
) -> Iterator[tuple[Search, list[Shown]]]:
    """Play sessions of one tenant until it has made enough searches."""
    popular = list(needs)
    rng.shuffle(popular)
    weights = zipf_weights(len(popular))
    made = 0
    session = 0
    while made < SEARCHES[tenant]:
        session += 1
        session_id = f"{tenant[0]}{session:05d}"
        moment = pick_moment(rng)
        need = rng.choices(popular, weights)[0]
        for _ in range(4):
            text = vary(need.query, rng)
            shown = browse(rank(engine, need, text, rng), need, rng)
            yield Search(session_id, moment, need, text), shown
            made += 1
            need_or_none = next_need(need, shown, popular, weights, rng)
            if need_or_none is None:
                break
            need = need_or_none
            moment += timedelta(seconds=rng.randint(12, 240))


def next_need(
    need: Need,
    shown: Sequence[Shown],
    popular: Sequence[Need],
    weights: Sequence[float],
    rng: random.Random,
) -> Need | None:
    """Decide whether the session goes on: other words, another need, or the end."""
    found = any(row.clicked and row.doc_id == need.doc_id for row in shown)
    if not found and rng.random() < SEARCH_AGAIN_AFTER_FAILURE:
        others = [other for other in popular if other.doc_id == need.doc_id and other != need]
        return rng.choice(others) if others else None
    if rng.random() < 0.15:
        return rng.choices(popular, weights)[0]
    return None


def write_days(out: Path, searches: Sequence[tuple[str, Search, list[Shown]]]) -> int:
    """Write one file per day and return the number of rows."""
    by_day: dict[date, list[list[str]]] = {FIRST_DAY + timedelta(days=number): [] for number in range(DAYS)}
    ordered = sorted(searches, key=lambda item: (item[1].moment, item[1].session_id))
    for number, (tenant, search, shown) in enumerate(ordered, start=1):
        stamp = search.moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        for row in shown:
            by_day[search.moment.date()].append(
                [
                    f"e{number:05d}-{row.position:02d}",
                    tenant,
                    search.session_id,
                    stamp,
                    search.text,
                    row.doc_id,
                    str(row.position),
                    "true" if row.clicked else "false",
                ]
            )
    for day, rows in by_day.items():
        folder = out / f"date={day.isoformat()}"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "impressions.csv").open("w", encoding="utf-8", newline="") as handle:
            writer = csv.writer(handle, lineterminator="\n")
            writer.writerow(HEADER)
            writer.writerows(rows)
    return sum(len(rows) for rows in by_day.values())


def main() -> None:
    """Read the sample, simulate, write."""
    parser = argparse.ArgumentParser(description="Simulate the click log of the sample data.")
    parser.add_argument("--out", type=Path, default=DATA / "sample" / "impressions")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()

    documents = load_documents(DATA / "sample")
    needs = load_needs(DATA / "sample_needs.csv")
    searches: list[tuple[str, Search, list[Shown]]] = []
    for tenant in ("default", "tern"):
        rng = random.Random(f"{options.seed}-{tenant}")  # noqa: S311 -- a simulation
        engine = Engine(documents[tenant])
        searches.extend((tenant, *pair) for pair in simulate(tenant, engine, needs[tenant], rng))
    rows = write_days(options.out, searches)
    print(f"{len(searches)} searches, {rows} rows")


if __name__ == "__main__":
    main()
