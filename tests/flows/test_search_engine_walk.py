"""The commands of docs/guides/search-engine.md, against a search server with the sample's documents and clicks."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from darklode.pipeline.base.artifacts import Run
from helpers import tutorial
from helpers.commands import DARKLODE, Environment, run_command
from helpers.fake_indexes import FakeIndexes
from helpers.runs import REPOSITORY, read

GUIDE = REPOSITORY / "docs" / "guides" / "search-engine.md"
SAMPLE = REPOSITORY / "data" / "sample"
ADDRESS = "localhost:9200"
N_DAYS = 5
TENANT = "default"


def documents() -> dict[str, dict[str, Any]]:
    """The sample's documents of one tenant by id."""
    folder = SAMPLE / "documents" / "pelagia"
    return {
        f"documents/pelagia/{path.relative_to(folder).as_posix()}": {
            "title": path.stem.replace("-", " "),
            "text": path.read_text(encoding="utf-8"),
        }
        for path in sorted(folder.rglob("*.md"))
    }


def ubi() -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Events and queries of the sample's first days, as UBI's plugin writes them."""
    events: dict[str, dict[str, Any]] = {}
    searches: dict[str, dict[str, Any]] = {}
    for path in sorted((SAMPLE / "impressions").glob("*/*.csv"))[:N_DAYS]:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row["tenant"] != TENANT:
                    continue
                search = row["event_id"].rpartition("-")[0]
                searches[search] = {"query_id": search, "user_query": row["query"], "timestamp": row["timestamp"]}
                target = {"object": {"object_id": row["doc_id"]}, "position": {"ordinal": int(row["position"])}}
                for action in ("impression", *(["click"] if row["clicked"] == "true" else [])):
                    events[f"{row['event_id']}-{action}"] = {
                        "action_name": action,
                        "query_id": search,
                        "session_id": row["session_id"],
                        "timestamp": row["timestamp"],
                        "event_attributes": target,
                    }
    return events, searches


@pytest.fixture
def engine() -> Iterator[FakeIndexes]:
    events, searches = ubi()
    with FakeIndexes({"docs": documents(), "ubi_events": events, "ubi_queries": searches}) as server:
        server.authorization = "Basic cmVhZGVyOlBBU1NXT1JE"
        yield server


@pytest.mark.slow
def test_from_a_search_engine_to_labels_and_back(engine: FakeIndexes, tmp_path: Path, alone: Environment) -> None:
    here = engine.url.removeprefix("http://")
    (settings,) = re.findall(r"^```yaml\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "engine.yaml").write_text(settings.replace(ADDRESS, here), encoding="utf-8")
    secret, *lines = tutorial.commands(GUIDE)
    name, _, value = secret[1].partition("=")
    environment = dict(alone) | {name: value, "OMP_NUM_THREADS": "2"}
    assert [line[:2] for line in lines] == [
        ["darklode", command] for command in ("build", "evaluate", "export", "mine")
    ]
    shown = []
    for line in lines:
        words = [word.replace(ADDRESS, here) for word in line[1:]]
        done = run_command([DARKLODE, *words], environment, tmp_path)
        assert done.code == 0, done
        shown.append(done.out)
    labelled(Run(str(tmp_path / "runs" / "shop")), engine, tmp_path / "out" / "quepid")
    assert "shop" in shown[1]
    clicked = Run(str(tmp_path / "runs" / "clicks"))
    assert clicked.tables().rows("impressions") == len(engine.indexes["ubi_events"]), "clicks have rows of their own"
    assert clicked.tables().rows("triplets") > 0
    assert engine.points == {}, "every point in time is closed"


def labelled(run: Run, engine: FakeIndexes, quepid: Path) -> None:
    """The engine is a retriever like the others, and the ratings are about its documents and UBI's queries."""
    assert {row["doc_id"] for row in read(run, "documents")} == set(engine.indexes["docs"])
    assert "shop" in {row["retriever"] for row in read(run, "audit_retrievers")}
    systems = {row["system"] for row in read(run, "evaluation")}
    assert systems == {"shop", "bm25", "lsa_feedback"}
    grades = {}
    for file in sorted(quepid.glob("ratings.*.csv")):
        with file.open(encoding="utf-8", newline="") as rows:
            grades |= {(row["query"], row["docid"]): int(row["rating"]) for row in csv.DictReader(rows)}
    asked = {search["user_query"] for search in engine.indexes["ubi_queries"].values()}
    assert grades
    assert {query for query, _ in grades if "[" not in query} <= asked, "[ip] and the like are masked"
    assert {document for _, document in grades} <= set(engine.indexes["docs"])
    owners = {row["chunk_id"]: row["doc_id"] for row in read(run, "chunks")}
    texts = {row["query_id"]: row["text"] for row in read(run, "queries")}
    positives = {(texts[row["query_id"]], owners[row["chunk_id"]]) for row in read(run, "qrels") if row["relevance"]}
    assert {pair for pair, grade in grades.items() if grade} == positives
