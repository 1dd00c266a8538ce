"""Indexes of search engines, on a server of the tests that checks each request against the documented interface."""

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from darklode.pipeline.base.errors import DarklodeError, InputError, MissingPart
from darklode.pipeline.base.types import Rows
from darklode.pipeline.ingest.sources.engine import EngineAddress, EngineTable, parse_engine
from darklode.pipeline.ingest.sources.rows import ALL_DAYS, BATCH_ROWS, DayRange
from helpers.fake_indexes import ELASTICSEARCH, OPENSEARCH, FakeIndexes

N_DOCS = 2 * BATCH_ROWS + 1
DOCS = {f"d{number:05}": {"title": f"title {number}", "doc_id": f"own {number}"} for number in range(N_DOCS)}
EVENTS: dict[str, dict[str, Any]] = {
    f"e{number}": {"timestamp": f"2026-03-0{1 + number // 2}T0{9 - number}:00:00Z", "action_name": "click"}
    for number in range(8)
} | {"late": {"timestamp": None}, "number": {"timestamp": 1772409600000}}


@pytest.fixture(params=[OPENSEARCH, ELASTICSEARCH])
def engine(request: pytest.FixtureRequest) -> Iterator[FakeIndexes]:
    with FakeIndexes({"docs": DOCS, "ubi_events": EVENTS, "empty": {}}, request.param) as server:
        yield server


def address(engine: FakeIndexes, path: str) -> str:
    return engine.url.replace("http", f"{engine.engine}+http", 1) + path


def table(engine: FakeIndexes, path: str, time_column: str | None = None, **options: Any) -> EngineTable:
    parsed = parse_engine(address(engine, path))
    return EngineTable(parsed, parsed.index, time_column, max_seconds=1.0, **options)


def rows(source: EngineTable, days: DayRange = ALL_DAYS, limit: int | None = None) -> Rows:
    return [row for batch in source.batches(days, limit) for row in batch]


def test_all_documents_come_once_by_their_id(engine: FakeIndexes) -> None:
    read = rows(table(engine, "/docs", is_documents=True))
    assert read[3] == {"doc_id": "d00003", "_id": "d00003", "title": "title 3", "_source.doc_id": "own 3"}
    assert [row["doc_id"] for row in read] == list(DOCS)
    assert {body["size"] for body in engine.searches} == {BATCH_ROWS}
    assert len(engine.searches) == 4  # three pages with rows, and one without
    assert engine.points == {}
    assert len(engine.closed) == 1


def test_rows_of_other_roles_keep_their_own_doc_id(engine: FakeIndexes) -> None:
    read = rows(table(engine, "/docs"), limit=1)
    assert read[0] == {"_id": "d00000", "title": "title 0", "doc_id": "own 0"}
    assert len(read) == BATCH_ROWS
    assert rows(table(engine, "/empty")) == []


def test_events_come_by_time_and_only_around_the_days_asked_for(engine: FakeIndexes) -> None:
    every = [row["_id"] for row in rows(table(engine, "/ubi_events", "timestamp"))]
    assert every == ["e1", "e0", "number", "e3", "e2", "e5", "e4", "e7", "e6", "late"]
    days = DayRange(date(2026, 3, 3), date(2026, 3, 3))
    some = [row["_id"] for row in rows(table(engine, "/ubi_events", "timestamp"), days)]
    assert some == ["number", "e3", "e2", "e5", "e4", "e7", "e6"]


def test_lost_and_refused_requests_are_repeated_without_loss(engine: FakeIndexes) -> None:
    faults = {1: "503", 3: "429", 4: "hang up", 6: "500"}
    engine.script = faults.get  # type: ignore[assignment]
    assert [row["_id"] for row in rows(table(engine, "/docs"))] == list(DOCS)
    assert engine.points == {}


def test_documents_of_a_point_in_time_do_not_change_while_they_are_read(engine: FakeIndexes) -> None:
    batches = table(engine, "/docs").batches(ALL_DAYS)
    first = next(batches)
    engine.indexes["docs"] = {"other": {}}
    assert [row["_id"] for row in [*first, *(row for batch in batches for row in batch)]] == list(DOCS)


def test_a_point_in_time_is_closed_when_reading_stops(engine: FakeIndexes) -> None:
    batches = table(engine, "/docs").batches(ALL_DAYS)
    next(batches)
    assert len(engine.points) == 1
    batches.close()  # type: ignore[attr-defined]
    assert engine.points == {}


def test_the_version_changes_with_the_index_and_is_unknown_without_permission(engine: FakeIndexes) -> None:
    version = table(engine, "/docs").version()
    assert version is not None
    assert table(engine, "/docs").version() == version
    engine.indexes["docs"]["new"] = {}
    assert table(engine, "/docs").version() not in {version, None}
    engine.has_stats = False
    assert table(engine, "/docs").version() is None


@pytest.mark.parametrize(
    ("key", "schemes"), [("user:hunter2", ["Basic dXNlcjpodW50ZXIy"] * 2), ("t", ["Bearer t", "ApiKey t"])]
)
def test_the_key_comes_from_the_environment(
    engine: FakeIndexes, monkeypatch: pytest.MonkeyPatch, key: str, schemes: list[str]
) -> None:
    engine.authorization = schemes[engine.engine == ELASTICSEARCH]
    with pytest.raises(DarklodeError, match="401"):
        rows(table(engine, "/docs"))
    with pytest.raises(MissingPart, match=r"index docs at 127\.0\.0\.1:\d+ needs a key: set .* SHOP_KEY"):
        table(engine, "/docs?api_key_env=SHOP_KEY")
    monkeypatch.setenv("SHOP_KEY", key)
    assert len(rows(table(engine, "/docs?api_key_env=SHOP_KEY"))) == N_DOCS
    engine.authorization = "another"
    with pytest.raises(DarklodeError, match="SHOP_KEY") as caught:
        rows(table(engine, "/docs?api_key_env=SHOP_KEY"))
    assert key not in str(caught.value) or len(key) == 1


def test_a_missing_index_and_a_server_that_is_down_are_named(engine: FakeIndexes) -> None:
    with pytest.raises(DarklodeError, match=r"^index none at 127\.0\.0\.1:\d+ .*404: check the address\."):
        rows(table(engine, "/none"))
    parsed = parse_engine("opensearch+http://127.0.0.1:1/docs")
    with pytest.raises(DarklodeError, match=r"^127\.0\.0\.1:1 cannot be reached"):
        rows(EngineTable(parsed, "docs", max_seconds=0.1))


def test_the_parts_of_an_address() -> None:
    assert parse_engine("opensearch+https://host:9200/products?api_key_env=KEY") == EngineAddress(
        "opensearch", "https://host:9200", "products", "", "KEY"
    )
    assert parse_engine("elasticsearch+http://host/behind/proxy/docs").base_url == "http://host/behind/proxy"
    logs = [
        parse_engine(f"opensearch+https://host{path}", is_log=True)
        for path in ("", "/shop_ubi_events", "/clicks", "/clicks?queries=searches")
    ]
    assert [(log.index, log.queries) for log in logs] == [
        ("ubi_events", "ubi_queries"),
        ("shop_ubi_events", "shop_ubi_queries"),
        ("clicks", ""),
        ("clicks", "searches"),
    ]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("opensearch://host/docs", r"begin the address with opensearch\+https://"),
        ("elasticsearch+ftp://host/docs", r"begin the address with elasticsearch\+https://"),
        ("opensearch+https://host/", "names no index"),
        ("opensearch+https://host/docs?scroll=1", "unknown option scroll"),
    ],
)
def test_a_wrong_address(wrong: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_engine(wrong)


def test_opensearch_py_reads_the_server_as_the_table_does() -> None:
    client = pytest.importorskip("opensearchpy")
    with FakeIndexes({"docs": DOCS}, OPENSEARCH) as server:
        engine = client.OpenSearch(server.url)
        point = engine.create_pit(index="docs", params={"keep_alive": "10m"})["pit_id"]
        body = {
            "size": 2,
            "query": {"match_all": {}},
            "sort": [{"_id": "asc"}],
            "pit": {"id": point, "keep_alive": "10m"},
        }
        hits = engine.search(body=body | {"search_after": ["d00001"]})["hits"]["hits"]
        assert [hit["_id"] for hit in hits] == ["d00002", "d00003"]
        assert engine.delete_pit(body={"pit_id": [point]})
        theirs = [(method, path) for method, path, _ in server.requests]
        rows(table(server, "/docs"), limit=1)
        assert [(method, path) for method, path, _ in server.requests[len(theirs) :]] == theirs


def test_elasticsearch_py_reads_the_server_as_the_table_does() -> None:
    client = pytest.importorskip("elasticsearch")
    with FakeIndexes({"docs": DOCS}, ELASTICSEARCH) as server:
        with client.Elasticsearch(server.url) as engine:
            point = engine.open_point_in_time(index="docs", keep_alive="10m")["id"]
            pit = {"id": point, "keep_alive": "10m"}
            found = engine.search(size=2, pit=pit, sort=[{"_shard_doc": "asc"}], search_after=[1])
            assert [hit["_id"] for hit in found["hits"]["hits"]] == ["d00002", "d00003"]
            engine.close_point_in_time(id=point)
        theirs = [(method, path) for method, path, _ in server.requests]
        rows(table(server, "/docs"), limit=1)
        assert [(method, path) for method, path, _ in server.requests[len(theirs) :]] == theirs
