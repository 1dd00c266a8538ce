"""Databases as retrievers: SQLite's full-text search everywhere, and PostgreSQL where it is installed."""

import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from darklode.pipeline.base.errors import DarklodeError, MissingPart
from darklode.pipeline.retrieve.retrievers.kinds.sql import KIND
from darklode.pipeline.retrieve.retrievers.live import LiveBuilder
from darklode.schemas.settings import CacheSettings
from helpers.external import external_run, rankings
from helpers.postgres import BINARIES, NOT_INSTALLED, PASSWORD, Postgres

ROWS = [
    ("acme", "manual", "open the box, reset the router with the button"),
    ("acme", "faq", "billing starts on the first day, how to reset the password"),
    ("acme", "odd id", "shipping takes two days"),
    ("zeta", "manual", "another tenant's manual"),
]
FTS5 = """
    SELECT doc_id, -bm25(docs) FROM docs
    WHERE docs MATCH '"' || replace(replace(:query, '"', ' '), ' ', '" OR "') || '"' AND tenant = :tenant
    ORDER BY bm25(docs), doc_id LIMIT :k
"""
TSEARCH = """
    SELECT doc_id, ts_rank_cd(terms, query) AS score
    FROM docs, (SELECT replace(plainto_tsquery('english', :query)::text, '&', '|')::tsquery AS query) AS asked
    WHERE terms @@ query AND tenant = :tenant ORDER BY score DESC, doc_id LIMIT :k
"""
FOUND = {
    "acme/q1": ["manual#b", "faq#b"],
    "acme/q2": ["faq#a"],
    "acme/q3": ["odd id#a"],
    "zeta/q1": ["manual#a"],
}


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("sqlite") / "docs.db"
    with sqlite3.connect(file) as database:
        database.execute(
            "CREATE VIRTUAL TABLE docs USING fts5(tenant UNINDEXED, doc_id UNINDEXED, body, tokenize = 'porter')"
        )
        database.executemany("INSERT INTO docs VALUES (?, ?, ?)", ROWS)
    database.close()
    return f"sqlite:///{file}"


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    if BINARIES is None:
        pytest.skip(NOT_INSTALLED)
    with tempfile.TemporaryDirectory(prefix="darklode-") as folder:
        server = Postgres(Path(folder), "search", "shop")
        with server.serving():
            values = ", ".join("('{}', '{}', '{}')".format(*(text.replace("'", "''") for text in row)) for row in ROWS)
            server.ask("CREATE TABLE docs (tenant text, doc_id text, body text)")
            server.ask(f"INSERT INTO docs VALUES {values}")
            server.ask(
                "ALTER TABLE docs ADD COLUMN terms tsvector GENERATED ALWAYS AS (to_tsvector('english', body)) STORED"
            )
            yield f"postgresql://search@127.0.0.1:{server.port}/shop"


def builder(dsn: str, statement: str, cache: Path, **settings: Any) -> LiveBuilder:
    password = {"password_env": "SHOP_PASSWORD"} if dsn.startswith("postgresql") else {}
    keys = {"dsn": dsn, "statement": statement, "retry_timeout": 2, "timeout": 5} | password | settings
    return LiveBuilder("shop", KIND.model_validate(keys), CacheSettings(root=str(cache)))


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveBuilder:
    """The same documents in both databases."""
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    return builder(request.getfixturevalue(request.param), FTS5 if request.param == "sqlite" else TSEARCH, tmp_path)


def test_its_documents_count_for_their_best_chunks(shop: LiveBuilder, tmp_path: Path) -> None:
    run = external_run(str(tmp_path / "run"))
    assert rankings(run, {"shop": shop}) == FOUND
    assert shop.try_query("shipping", "acme") == []
    assert shop.try_query("weather", "acme") == ["retrievers.shop: the first query, 'weather', has no hits"]
    assert shop.engine.missing() == []


def test_a_query_is_a_parameter_whatever_it_says(shop: LiveBuilder) -> None:
    texts = ["'; DROP TABLE docs; --", ":k", "reset'", 'say "billing"', "%s $1 ?", "\\"]
    answers = dict(shop.engine.connect("shop", "acme").search(texts, 5))
    assert sorted(answers) == list(range(6))
    assert set(answers[2][0]) == {"manual", "faq"}
    assert answers[3][0] == ["faq"]
    assert dict(shop.engine.connect("shop", "acme").search(["billing"], 5))[0][0] == ["faq"]


def test_many_queries_share_few_connections(shop: LiveBuilder) -> None:
    texts = ["billing", "shipping"] * 60
    answers = dict(shop.engine.connect("shop", "acme").search(texts, 1))
    assert [answers[number][0] for number in range(120)] == [["faq"], ["odd id"]] * 60


def test_a_statement_that_fails_names_its_reason_and_no_password(shop: LiveBuilder) -> None:
    wrong = shop.engine.model_copy(update={"statement": "SELECT nothing FROM docs WHERE :query = :query LIMIT :k"})
    with pytest.raises(
        DarklodeError, match=r"query 'billing' failed, .*nothing.* Check retrievers.shop.statement"
    ) as raised:
        list(wrong.connect("shop", "acme").search(["billing"], 5))
    assert PASSWORD not in str(raised.value)


def test_a_row_without_an_id_is_an_error_and_one_without_a_score_is_none(shop: LiveBuilder) -> None:
    def search(columns: str) -> list[Any]:
        statement = f"SELECT {columns} FROM docs WHERE tenant = 'acme' AND :query = :query ORDER BY doc_id LIMIT :k"
        live = shop.engine.model_copy(update={"statement": statement}).connect("shop", "acme")
        return [answer for _, answer in live.search(["billing"], 2)]

    assert search("doc_id") == [(["faq", "manual"], [1.0, 0.5])]
    assert search("doc_id, NULL") == [(["faq", "manual"], [1.0, 0.5])]
    with pytest.raises(DarklodeError, match="row 1 of query 'billing' has no id in its first column, but None"):
        search("NULL, 1.0")


def test_a_wrong_password_is_an_error_at_once(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "wrong")
    live = builder(postgres, TSEARCH, tmp_path, retry_timeout=600).engine.connect("shop", "acme")
    with pytest.raises(DarklodeError, match="password authentication failed"):
        list(live.search(["billing"], 5))
    monkeypatch.delenv("SHOP_PASSWORD")
    with pytest.raises(MissingPart, match="set the environment variable SHOP_PASSWORD"):
        builder(postgres, TSEARCH, tmp_path).engine.connect("shop", "acme")


def test_postgresql_is_only_read(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    statement = "DELETE FROM docs WHERE :query = :query AND CAST(:k AS integer) > 0 RETURNING doc_id"
    live = builder(postgres, statement, tmp_path).engine.connect("shop", "acme")
    with pytest.raises(DarklodeError, match="read-only transaction"):
        list(live.search(["billing"], 5))


def test_a_slow_statement_times_out_and_a_dead_server_is_given_up(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    slow = "SELECT doc_id, 1 FROM docs, pg_sleep(60) WHERE :query = :query LIMIT :k"
    live = builder(postgres, slow, tmp_path, timeout=0.3, retry_timeout=0.2).engine.connect("shop", "acme")
    with pytest.raises(DarklodeError, match=r"no answer within 0.3 s; query 'billing' has failed for 0.2 s"):
        list(live.search(["billing"], 5))
    dead = builder("postgresql://search@127.0.0.1:9/shop", TSEARCH, tmp_path, retry_timeout=0.2).engine
    assert dead.missing() == ["no server at 127.0.0.1:9; start it, or correct dsn"]
    with pytest.raises(DarklodeError, match=r"has failed for 0.2 s \(retrievers.shop.retry_timeout\)"):
        list(dead.connect("shop", "acme").search(["billing"], 5))


def test_a_locked_database_is_waited_for(sqlite: str, tmp_path: Path) -> None:
    file = sqlite.removeprefix("sqlite:///")
    holder = sqlite3.connect(file, check_same_thread=False)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    released = threading.Timer(0.7, lambda: (holder.rollback(), holder.close()))
    released.start()
    live = builder(f"{sqlite}?timeout=0.1", FTS5, tmp_path, retry_timeout=20).engine.connect("shop", "acme")
    assert dict(live.search(["billing"], 5))[0][0] == ["faq"]
    released.join()
