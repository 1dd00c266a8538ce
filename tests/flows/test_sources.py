"""Builds and mining from a database and from a search engine's indexes, through the flow and on the command line."""

import json
import re
import sqlite3
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from darklode.flows.config import load_settings
from darklode.flows.preflight import build_checks, mining_checks, run_checks
from darklode.flows.runs import read_inputs
from darklode.flows.sources import local_path
from darklode.pipeline.base.artifacts import Run
from helpers.commands import DARKLODE, Environment, built, one_line, run_inside
from helpers.fake_indexes import FakeIndexes
from helpers.subjects import SUBJECTS, write_subjects

SETTINGS = ["--set", "clean.keep_all=true", "--set", "pool.retrievers=[bm25]", "--set", "judge.kind=embedded"]
FIRST = date(2026, 3, 1)


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "files").mkdir()
    folder = write_subjects(tmp_path / "files")
    return {subject: (folder / "docs" / f"{subject}.md").read_text() for subject in SUBJECTS}


def queries(folder: Path) -> list[str]:
    return (folder / "files" / "queries.txt").read_text().splitlines()


def command(name: str, out: Path, *options: str) -> list[str]:
    return [DARKLODE, name, "--out", str(out), *options]


@pytest.mark.server
def test_a_build_from_a_database_redoes_only_what_changed(
    served: Environment, tmp_path: Path, texts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE docs (sku TEXT PRIMARY KEY, body TEXT)")
        database.executemany("INSERT INTO docs VALUES (?, ?)", texts.items())
        database.execute("CREATE TABLE searches (term TEXT)")
        database.executemany("INSERT INTO searches VALUES (?)", [(text,) for text in queries(tmp_path)])
    database.close()
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "run"
    build = command("build", out, "--docs", "sqlite:///shop.db?table=docs", "--queries", "sqlite:///shop.db", *SETTINGS)
    build += ["--set", "ingest.queries.statement=SELECT rowid AS id, term AS query FROM searches ORDER BY rowid"]
    build += ["--set", "ingest.documents.columns.doc_id=sku", "--set", f"cache.root={tmp_path}/cache"]
    printed = built(build, served)
    assert re.search(rf"docs from sqlite:///{tmp_path}/shop\.db\?table=docs: {len(texts)} rows", printed), printed
    tables = Run(str(out)).tables()
    assert set(tables.read("documents")["doc_id"].to_pylist()) == set(texts)
    assert tables.rows("raw_queries") == len(queries(tmp_path))
    assert tables.rows("triplets") > 0
    inputs = read_inputs(Run(str(out))).model_dump()
    assert inputs["docs"] == f"sqlite:///{tmp_path}/shop.db?table=docs"
    states = [row["state"] for row in json.loads(built([DARKLODE, "status", str(out), "--json"], served))["stages"]]
    assert set(states) == {"up to date"}
    manifests = Run(str(out)).manifests()
    built(build, served)
    assert Run(str(out)).manifests() == manifests
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("UPDATE docs SET body = body || ' changed' WHERE sku = ?", [next(iter(texts))])
    database.close()
    built(build, served)
    changed = {name for name, manifest in Run(str(out)).manifests().items() if manifest != manifests[name]}
    assert "ingest_documents" in changed
    assert "ingest_queries" not in changed
    assert not any("shop.db" in path.name for path in out.rglob("*"))


@pytest.mark.server
def test_wrong_columns_and_unknown_tables_stop_a_build_before_it_starts(served: Environment, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE docs (sku TEXT, description TEXT)")
        database.execute("INSERT INTO docs VALUES ('a', 'some text')")
    database.close()
    (tmp_path / "queries.txt").write_text("a query\n")
    for table, message in (
        ("docs", r"docs-00000\.jsonl has no column for the text .*description"),
        ("x", "no such table: x"),
    ):
        docs = f"sqlite:///{tmp_path}/shop.db?table={table}"
        shown = run_inside(
            command("build", tmp_path / "run", "--docs", docs, "--queries", str(tmp_path / "queries.txt")), served
        )
        one_line(shown, message)
        assert "darklode-source-" not in shown.err
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("path", ["postgresql://u:hunter2@h/db?table=x", "opensearch+https://u:hunter2@h/x"])
def test_a_secret_in_an_address_stops_every_command(served: Environment, tmp_path: Path, path: str) -> None:
    for name, options in (("build", ["--docs", path, "--queries", path]), ("mine", ["--logs", path, "--docs", path])):
        shown = run_inside(command(name, tmp_path / "run", *options), served)
        assert shown.code == 1
        assert "must not contain a password or key" in shown.err
        assert "hunter2" not in shown.out + shown.err
        assert not (tmp_path / "run").exists()


def ubi(texts: dict[str, str], folder: Path, day: date) -> tuple[dict[str, Any], dict[str, Any]]:
    """Events and queries of a day: each query of the subjects shows two documents, and its own is clicked."""
    events, searches = {}, {}
    for number, text in enumerate(queries(folder)):
        own = text.split()[-1]
        other = next(subject for subject in texts if subject != own)
        search, time = f"{day}-{number}", f"{day}T{number % 24:02}:00:00Z"
        searches[search] = {"query_id": search, "user_query": text, "query": "{}", "timestamp": time, "client_id": "c"}
        for at, (subject, action) in enumerate(((other, "impression"), (own, "impression"), (own, "click"))):
            events[f"{search}-{at}"] = {
                "action_name": action,
                "query_id": search,
                "session_id": f"s{number % 3}",
                "timestamp": time,
                "event_attributes": {"object": {"object_id": subject}, "position": {"ordinal": at % 2 + 1}},
            }
    return events, searches


@pytest.fixture
def engine(tmp_path: Path, texts: dict[str, str]) -> Iterator[FakeIndexes]:
    events, searches = dict[str, Any](), dict[str, Any]()
    for number in range(3):
        of_day = ubi(texts, tmp_path, FIRST + timedelta(number))
        events, searches = events | of_day[0], searches | of_day[1]
    documents = {name: {"title": name, "text": text} for name, text in texts.items()}
    with FakeIndexes({"docs": documents, "ubi_events": events, "ubi_queries": searches}) as server:
        server.authorization = "Basic cmVhZGVyOnB3"
        yield server


@pytest.mark.server
def test_an_engines_documents_queries_and_log(
    served: Environment, tmp_path: Path, texts: dict[str, str], engine: FakeIndexes
) -> None:
    """The night after reads only the new day."""
    environment = {**served, "SHOP_SEARCH": "reader:pw"}
    host, key = f"opensearch+{engine.url}", "api_key_env=SHOP_SEARCH"
    cache = ["--set", f"cache.root={tmp_path}/cache"]
    out = tmp_path / "run"
    built(
        command(
            "build", out, "--docs", f"{host}/docs?{key}", "--queries", f"{host}/ubi_queries?{key}", *SETTINGS, *cache
        ),
        environment,
    )
    assert set(Run(str(out)).tables().read("documents")["doc_id"].to_pylist()) == set(texts)
    assert set(Run(str(out)).tables().read("raw_queries")["text"].to_pylist()) == set(queries(tmp_path))
    mined = tmp_path / "mined"
    mine = command("mine", mined, "--logs", f"{host}?{key}", "--docs", f"{host}/docs?{key}", *cache)
    mine += ["--set", "logs.max_late_days=0"]
    built(mine, environment)
    tables = Run(str(mined)).tables()
    assert tables.rows("impressions") == len(engine.indexes["ubi_events"]) == 108
    assert tables.rows("triplets") > 0
    events, searches = ubi(texts, tmp_path, FIRST + timedelta(3))
    engine.indexes["ubi_events"] |= events
    engine.indexes["ubi_queries"] |= searches
    printed = built(mine, environment)
    assert "new or changed in the log: 2026-03-04" in printed, printed
    assert "docs from" in printed
    assert ": unchanged" in printed
    assert Run(str(mined)).tables().rows("impressions") == len(engine.indexes["ubi_events"]) == 144


def test_a_source_that_is_down_is_reported_once(tmp_path: Path) -> None:
    settings = load_settings(assignments=[f"cache.root={tmp_path}/cache"])
    down = "postgresql://user@127.0.0.1:1/db?table=docs"
    results = run_checks(build_checks(down, down, str(tmp_path / "run"), settings))
    assert len([error for error in results.errors if "127.0.0.1:1" in str(error)]) == 1
    results = run_checks(mining_checks(down, down, str(tmp_path / "run"), settings, [FIRST]))
    assert len([error for error in results.errors if "127.0.0.1:1" in str(error)]) == 1


def test_the_snapshot_is_in_the_cache_of_this_machine(tmp_path: Path) -> None:
    run, address = Run(str(tmp_path / "run")), "sqlite:///shop.db?table=docs"
    settings = load_settings(assignments=[f"cache.root={tmp_path}/cache"])
    path = local_path(run, "docs", address, settings)
    assert Path(path).is_relative_to(tmp_path / "cache")
    assert local_path(run, "queries", address, settings) != path
    assert local_path(Run(str(tmp_path / "other")), "docs", address, settings) != path
    assert local_path(run, "docs", "docs/", settings) == "docs/"
    remote = load_settings(assignments=["cache.root=s3://bucket/cache"])
    assert "s3:" not in local_path(run, "docs", address, remote)
