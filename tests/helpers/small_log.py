"""Small random search logs, and the stages of mining on them with simple stand-ins for planner and ranker."""

import hashlib
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from unittest.mock import patch

import pyarrow as pa

from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.base.sharding import Spread, here
from darklode.pipeline.mine import pairs
from darklode.pipeline.mine.evidence import EVIDENCE, LOG_QUERIES_STAGE, evidence, log_queries
from darklode.pipeline.mine.multi_hop import LendingRules
from darklode.pipeline.mine.one_hop import OneHop
from darklode.pipeline.mine.pairs import PAIRS_STAGE, mined_pairs
from darklode.pipeline.mine.session_split import SessionSplit
from darklode.pipeline.mine.splits import MINED_SPLITS, mined_splits
from darklode.pipeline.triplets.mined import MINED_TRIPLETS, mined_triplets
from darklode.schemas.mining import ClickSettings, LogSettings, MiningSettings
from darklode.schemas.settings import TripletSettings
from darklode.schemas.tables import TABLES
from helpers.runs import execute, put

FIRST = date(2026, 3, 1)
WORDS = "reset password api key refund invoice export webhook".split()
DOCS = [f"d{number}" for number in range(9)]
NEVER = "9999-12-31"
HOP = OneHop(ClickSettings(negatives="exposed"), NEVER, 13)
SESSIONS = SessionSplit("session", 0.3, 13)


@dataclass(frozen=True)
class Search:
    """One search: what was shown at places 1, 2, …, and the places that were clicked."""

    tenant: str
    session: str
    minute: int
    query: str
    shown: tuple[str, ...]
    clicked: frozenset[int] = frozenset()


Log = Mapping[date, list[Search]]


def normal_form(text: str) -> str:
    """The normal form of what `_search` spells."""
    return text.lower().rstrip("?!")


def query_id(text: str) -> str:
    return hashlib.sha256(normal_form(text).encode()).hexdigest()[:16]


def random_log(number: int, days: int = 6, searches: int = 12) -> dict[date, list[Search]]:
    """Few queries and documents, so that evidence meets."""
    chance = random.Random(number)
    texts = [" ".join(chance.sample(WORDS, chance.randint(1, 3))) for _ in range(10)]
    return {FIRST + timedelta(day): [_search(chance, texts) for _ in range(searches)] for day in range(days)}


def _search(chance: random.Random, texts: list[str]) -> Search:
    shown = tuple(chance.sample(DOCS, chance.randint(1, 5)))
    clicked = frozenset(place for place in range(1, len(shown) + 1) if chance.random() < 0.25)
    tenant, text = chance.choice(["default", "default", "tern"]), chance.choice(texts)
    spelled = chance.choice([text, text, text.upper(), f"{text}?", f"{text}!"])
    return Search(tenant, f"s{chance.randrange(40)}", chance.randrange(1440), spelled, shown, clicked)


def impressions(day: date, searches: Iterable[Search]) -> pa.Table:
    """A day's rows of `impressions`."""
    rows = [
        {
            "tenant": search.tenant,
            "event_id": f"{day}-{number}-{place}",
            "search_id": f"{day}-{number}",
            "session_id": search.session,
            "timestamp": datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(minutes=search.minute),
            "query_id": query_id(search.query),
            "query": search.query,
            "doc_id": doc,
            "position": place,
            "clicked": place in search.clicked,
        }
        for number, search in enumerate(searches)
        for place, doc in enumerate(search.shown, 1)
    ]
    return pa.Table.from_pylist(rows, TABLES["impressions"].schema)


def corpus(docs: Iterable[str] = DOCS, tenants: Iterable[str] = ("default", "tern")) -> pa.Table:
    """The tenants' documents, with the same ids and different texts."""
    rows = [
        {"tenant": tenant, "doc_id": doc, "title": f"Title of {doc}", "text": f"{tenant} {doc} " + "text " * 9}
        for tenant in tenants
        for doc in docs
    ]
    filled = [row | {"source": "test", "content_hash": hashlib.md5(row["text"].encode()).hexdigest()} for row in rows]
    return pa.Table.from_pylist(filled, TABLES["documents"].schema)


def share_a_word(one: str, other: str) -> list[str]:
    return sorted(set(one.split()) & set(other.split()))


def associate(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """By click: the borrower's first word is one of the lender's. By relevance: they share two words."""
    found = []
    for one in rows:
        for other in rows:
            if one["tenant"] != other["tenant"] or one["query_id"] == other["query_id"]:
                continue
            shared = share_a_word(str(one["normal_form"]), str(other["normal_form"]))
            kinds = ["click"] if str(one["normal_form"]).split()[0] in shared else []
            kinds += ["relevance"] if len(shared) > 1 else []
            day = max(one["date"], other["date"])  # type: ignore[type-var]
            base = {"tenant": one["tenant"], "query_id": one["query_id"], "associated_query_id": other["query_id"]}
            score = len(shared) / len(WORDS)
            found += [base | {"kind": kind, "terms": shared, "score": score, "date": day} for kind in kinds]
    return found


def rank(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """A positive and negatives that hang on the query alone; every third query has none."""
    found = []
    for row in rows:
        lot = int(str(row["query_id"]), 16)
        if lot % 3:
            drawn = [DOCS[(lot + 1 + (lot + step) % 8) % 9] for step in range(lot % 5)]
            ids = {"positive_id": DOCS[lot % 9], "negative_ids": drawn}
            scores = {"positive_score": 0.9, "negative_scores": [0.25 / (1 + step) for step in range(len(drawn))]}
            found.append({"tenant": row["tenant"], "query_id": row["query_id"], **ids, **scores})
    return found


def by_day(run: Run, stage: Stage, table: str, rows: list[dict[str, object]], days: Mapping[str, date]) -> None:
    """Write rows as a part a day."""

    def work(_tables: Tables, output: Output) -> None:
        for day in sorted(set(days.values())):
            own = [row for row in rows if days[f"{row['tenant']} {row['query_id']}"] == day or row.get("date") == day]
            own = [row for row in own if row.get("date", day) == day]
            output.write(table, pa.Table.from_pylist(own, TABLES[table].schema))

    run.execute(run.plan(stage, {}), work)


def mine(
    run: Run,
    log: Log,
    *,
    hop: OneHop = HOP,
    rules: LendingRules = LendingRules(2, "strongest", guarded=False),  # noqa: B008 (it is frozen)
    docs: pa.Table | None = None,
    apart: bool = False,
    patch_share: float = 0.05,
    spread: Spread = here,
) -> None:
    """A night: all stages over the days that have come in so far."""

    write_log(run, log)
    put(run, "documents", corpus() if docs is None else docs)
    learn(run, hop, spread)
    manifest = run.manifest(EVIDENCE)
    assert manifest is not None
    contains = manifest.facts["contains"]

    def pair(tables: Tables, output: Output) -> None:
        with patch.object(pairs, "PATCH_SHARE", patch_share):
            mined_pairs(
                tables,
                output,
                hop,
                rules,
                contains=contains,
                spread=spread,
            )

    execute(run, PAIRS_STAGE, pair)
    execute(
        run,
        MINED_TRIPLETS,
        lambda tables, output: mined_triplets(
            tables, output, MiningSettings(), TripletSettings(), apart=apart, seed=13
        ),
    )


def write_log(run: Run, log: Log) -> None:
    """The impressions, and a click model without rows."""

    def ingest(_tables: Tables, output: Output) -> None:
        for day, searches in sorted(log.items()):
            output.write("impressions", impressions(day, searches))

    execute(run, Stage("given_log", 1, (), ("impressions",)), ingest)
    for table in ("click_model", "click_prior"):
        put(run, table, TABLES[table].empty())


def learn(run: Run, hop: OneHop, spread: Spread = here) -> None:
    """Evidence, queries, associations and what the ranker says."""
    execute(
        run,
        EVIDENCE,
        lambda tables, output: evidence(
            tables, output, hop.settings, LogSettings(), sessions=SESSIONS if hop.by_session else None, spread=spread
        ),
    )
    execute(run, LOG_QUERIES_STAGE, log_queries)
    test_from = None if hop.before == NEVER else date.fromisoformat(hop.before)
    execute(
        run,
        MINED_SPLITS,
        lambda tables, output: mined_splits(tables, output, validation_share=0.3, test_from=test_from, seed=13),
    )
    queries = run.tables("log_queries").read("log_queries").to_pylist()
    days = {f"{row['tenant']} {row['query_id']}": row["date"] for row in queries}
    by_day(run, Stage("associate", 1, (), ("associations",)), "associations", associate(queries), days)
    by_day(run, Stage("relevance", 1, (), ("relevance_evidence",)), "relevance_evidence", rank(queries), days)
