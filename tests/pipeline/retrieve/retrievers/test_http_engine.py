"""A search engine over a real socket: what is sent, what is read, and what happens when it fails."""

from pathlib import Path
from typing import Any

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import DarklodeError, InputError, MissingPart
from darklode.pipeline.retrieve.retrievers.external import UNKNOWN_HIT
from darklode.pipeline.retrieve.retrievers.kinds.opensearch import KIND
from darklode.pipeline.retrieve.retrievers.live import LiveBuilder
from darklode.schemas.settings import CacheSettings
from helpers.external import CHUNK_TEXTS, external_run, rankings, rejects
from helpers.fake_engine import FakeEngine, Script

REQUEST = {"query": {"multi_match": {"query": "{query}", "fields": ["title", "body"]}}, "size": "{k}"}
DOCUMENTS = {
    "manual": "open the box reset the router with the button another tenant's manual",
    "faq": "billing starts on the first day how to reset the password",
    "odd id": "shipping takes two days",
    "blog": "billing news from the company",
}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return external_run(str(tmp_path / "run"))


def serving(script: Script | None = None) -> FakeEngine:
    return FakeEngine({"shop": DOCUMENTS}, script)


def builder(url: str, cache: Path, **settings: Any) -> LiveBuilder:
    keys = {"base_url": url, "index": "shop", "request": REQUEST, "retry_timeout": 20} | settings
    return LiveBuilder("engine", KIND.model_validate(keys), CacheSettings(root=str(cache)))


FOUND = {
    "acme/q1": ["manual#b", "faq#b"],
    "acme/q2": ["faq#a"],
    "acme/q3": ["odd id#a"],
    "zeta/q1": ["manual#a"],
}


def test_documents_that_the_engine_finds_count_for_their_best_chunks(run: Run, tmp_path: Path) -> None:
    with serving() as engine:
        assert rankings(run, {"engine": builder(engine.url, tmp_path)}, depth=3) == FOUND
    assert sorted(body["query"]["multi_match"]["query"] for body in engine.searches) == [
        "billing",
        "manual",
        "reset the router",
        "shipping",
    ]
    assert {body["size"] for body in engine.searches} == {3}
    assert engine.paths == ["/shop/_search"] * 4


def test_hits_of_other_documents_are_rejects(run: Run, tmp_path: Path) -> None:
    with serving() as engine:
        rankings(run, {"engine": builder(engine.url, tmp_path)})
        address = engine.url.removeprefix("http://")
    (reject,) = rejects(run)
    assert reject == {
        "tenant": "acme",
        "id": "blog",
        "file": f"engine at {address}",
        "line": None,
        "reason": UNKNOWN_HIT,
        "payload": "in 2 rankings",
    }


def test_many_hits_of_which_none_is_known_are_an_error(run: Run, tmp_path: Path) -> None:
    others = {f"product {number}": "reset billing shipping manual" for number in range(60)}
    with FakeEngine({"shop": others}) as engine, pytest.raises(InputError, match=r"none of \d+ hits .*'product 0'"):
        rankings(run, {"engine": builder(engine.url, tmp_path)})


def test_answers_are_cached_until_the_index_changes(run: Run, tmp_path: Path) -> None:
    with serving() as engine:
        one = builder(engine.url, tmp_path)
        rankings(run, {"engine": one})
        assert rankings(external_run(str(tmp_path / "again")), {"engine": one}) == FOUND
        assert len(engine.searches) == 4
        engine.sequence_number += 1
        engine.indexes["shop"]["odd id"] = "billing"
        changed = rankings(external_run(str(tmp_path / "changed")), {"engine": one})
        assert changed["acme/q2"] == ["faq#a", "odd id#a"]
        assert len(engine.searches) == 8


def test_without_a_version_answers_are_cached_by_that_of_the_settings_or_not_at_all(run: Run, tmp_path: Path) -> None:
    with serving() as engine:
        engine.has_stats = False
        for number, (version, n_searches) in enumerate([(None, 4), (None, 8), ("1", 12), ("1", 12), ("2", 16)]):
            one = builder(engine.url, tmp_path, index_version=version)
            rankings(external_run(str(tmp_path / f"run{number}")), {"engine": one})
            assert len(engine.searches) == n_searches


def test_a_depth_beyond_the_limit_is_not_requested(run: Run, tmp_path: Path) -> None:
    with serving() as engine:
        found = rankings(run, {"engine": builder(engine.url, tmp_path, top_k=1)})
    assert found["acme/q1"] == ["manual#b"]
    assert {body["size"] for body in engine.searches} == {1}


FAULTS = ["429", "503", "hang", "html", "truncated", "malformed", "shard failed", "timed out", "no ids"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_that_passes_changes_no_ranking(run: Run, tmp_path: Path, fault: str) -> None:
    with serving(lambda number: fault if number in {1, 3} else None) as engine:
        one = builder(engine.url, tmp_path, timeout=0.5)
        assert rankings(run, {"engine": one}) == FOUND
        assert len(engine.searches) >= 6


def test_a_failure_that_stays_is_an_error_and_keeps_the_answers(run: Run, tmp_path: Path) -> None:
    with serving(lambda number: "shard failed" if number > 2 else None) as engine:
        one = builder(engine.url, tmp_path, max_concurrency=1)
        with pytest.raises(DarklodeError, match=r"query '.*' failed, .*1 shards failed.* retrievers.engine.request"):
            rankings(run, {"engine": one})
        engine.script = lambda _number: None
        served = len(engine.served)
        assert rankings(external_run(str(tmp_path / "again")), {"engine": one}) == FOUND
        assert len(engine.served) - served == 2


def test_a_request_that_the_engine_rejects_names_its_reason(run: Run, tmp_path: Path) -> None:
    request = {"query": {"match": {"body": {"query": "{query}", "fuzzy": True}}}, "size": "{k}"}
    with serving() as engine, pytest.raises(DarklodeError, match="status 400: unknown key of match"):
        rankings(run, {"engine": builder(engine.url, tmp_path, request=request)})


def test_a_missing_index_is_an_error_at_once(run: Run, tmp_path: Path) -> None:
    with serving() as engine:
        with pytest.raises(
            MissingPart, match=r"answered 404: check retrievers.engine.base_url .*no such index \[none\]"
        ):
            rankings(run, {"engine": builder(engine.url, tmp_path, index="none")})
        texts = [body["query"]["multi_match"]["query"] for body in engine.searches]
        assert len(texts) == len(set(texts)) <= 3  # none was sent again


@pytest.mark.parametrize(
    ("key", "header"),
    [("reader:s3cret:word", "Basic cmVhZGVyOnMzY3JldDp3b3Jk"), ("0123abcd", "Bearer 0123abcd")],
)
def test_the_key_comes_from_the_environment(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, header: str
) -> None:
    with serving() as engine:
        engine.authorization = header
        one = builder(engine.url, tmp_path, api_key_env="SHOP_KEY")
        with pytest.raises(MissingPart, match="set the environment variable SHOP_KEY"):
            rankings(run, {"engine": one})
        monkeypatch.setenv("SHOP_KEY", "wrong")
        with pytest.raises(MissingPart, match="rejected the key in SHOP_KEY, status 401"):
            rankings(run, {"engine": one})
        monkeypatch.setenv("SHOP_KEY", key)
        assert rankings(run, {"engine": one}) == FOUND
    assert key not in str(one.identity)


def test_each_tenant_may_have_its_index(run: Run, tmp_path: Path) -> None:
    indexes = {"docs-acme": {"faq": "billing"}, "docs-zeta": {"manual": "manual billing"}}
    with FakeEngine(indexes) as engine:
        assert rankings(run, {"engine": builder(engine.url, tmp_path, index="docs-{tenant}")}) == {
            "acme/q2": ["faq#a"],
            "zeta/q1": ["manual#a"],
        }
    assert set(engine.paths) == {"/docs-acme/_search", "/docs-zeta/_search"}


def test_a_filter_may_name_the_tenant(run: Run, tmp_path: Path) -> None:
    clauses = {"must": [{"match": {"body": "{query}"}}], "filter": [{"term": {"tenant": "{tenant}"}}]}
    with serving() as engine:
        rankings(run, {"engine": builder(engine.url, tmp_path, request={"query": {"bool": clauses}, "size": "{k}"})})
    filters = {body["query"]["bool"]["filter"][0]["term"]["tenant"] for body in engine.searches}
    assert filters == {"acme", "zeta"}


def test_hostile_queries_are_data(tmp_path: Path) -> None:
    texts = ['"}}, {"match_all": {}}', "{k}", "{tenant}", "\\", "\u2028 reset", "billing\x00"]
    with serving() as engine:
        live = builder(engine.url, tmp_path).engine.connect("engine", "acme")
        assert sorted(number for number, _ in live.search(texts, 5)) == list(range(6))
    assert sorted(body["query"]["multi_match"]["query"] for body in engine.searches) == sorted(texts)


def test_rankings_are_those_of_the_engine() -> None:
    assert {doc_id for _, _, doc_id, _ in CHUNK_TEXTS} == set(DOCUMENTS) - {"blog"}
