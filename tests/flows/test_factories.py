"""From settings to retrievers, rankers and estimates; what cannot be is said by name."""

import re
from datetime import date

import pytest

from darklode.flows.config import load_settings
from darklode.flows.factories import (
    fetch_models,
    fetch_ranker,
    identities,
    judge_estimates,
    ranker,
    ranking_judges,
    retrievers,
)
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import MissingPart, SettingsError
from darklode.pipeline.judge.kinds.cross_encoder import CrossEncoderSettings
from darklode.pipeline.retrieve.retrievers.neural import NeuralBuilder
from darklode.schemas.settings import Settings

OPENAI = "encoders.mine={kind: openai, model: m, base_url: http://127.0.0.1:1/v1, api_key_env: ''}"


def settings(*assignments: str) -> Settings:
    return load_settings(assignments=list(assignments))


def test_retrievers_come_in_the_order_named_with_all_that_can_change_their_lists() -> None:
    chosen = settings("pool.retrievers=[ppmi, bm25, mine]", OPENAI, "bm25.k1=0.9")
    found = retrievers(chosen)
    assert list(found) == ["ppmi", "bm25", "mine"]
    assert isinstance(found["mine"], NeuralBuilder)
    named = identities(found)
    assert (named["ppmi"], named["bm25"]["k1"]) == ("ppmi", 0.9)
    assert named["mine"]["encoder"].startswith("openai:m@127.0.0.1:1/v1")
    assert identities(retrievers(settings("pool.retrievers=[mine]", OPENAI, "vector_search.index=hnsw"))) != {
        "mine": named["mine"]
    }


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("[]", "pool.retrievers must name at least one retriever, without duplicates"),
        ("[bm25, bm25]", "without duplicates"),
        ("[bm25, mien]", "pool.retrievers: unknown retriever mien; did you mean mine?"),
        ("[ppmy]", "did you mean ppmi?"),
    ],
)
def test_retrievers_that_are_none_are_named_with_the_nearest(names: str, message: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        retrievers(settings(f"pool.retrievers={names}", OPENAI))


def test_a_named_section_gives_a_kind_other_keys() -> None:
    chosen = settings("pool.retrievers=[bm25, long]", "retrievers.long={kind: bm25, b: 0.9}")
    assert identities(retrievers(chosen))["long"]["b"] == 0.9
    assert identities(retrievers(chosen))["bm25"]["b"] == 0.75


def test_a_ranker_is_another_with_another_judge_retriever_chunking_or_period() -> None:
    through = date(2026, 3, 1)
    versions = [
        ranker(settings(*given), day).identity["version"]
        for given, day in (
            ((), through),
            ((), None),
            (("judge.threshold=0.3",), through),
            (("relevance.retrievers=[ppmi]",), through),
            (("chunk.size=300",), through),
        )
    ]
    assert len(set(versions)) == len(versions)
    assert ranker(settings(), through).identity["version"] == versions[0]
    with pytest.raises(SettingsError, match=r"relevance\.retrievers must name"):
        ranker(settings("relevance.retrievers=[]"), through)


def test_a_cross_encoder_ranks_beside_the_judge_that_may_check_it() -> None:
    alone = ("relevance.ranker=cross_encoder", "relevance.model=owner/name")
    chosen = settings(*alone, "relevance.revision=abc", "relevance.max_seq_length=9")
    (member,) = ranking_judges(chosen)
    assert isinstance(member, CrossEncoderSettings)
    assert (member.model, member.revision, member.max_seq_length, member.device) == ("owner/name", "abc", 9, "auto")
    versions = {
        ranker(settings(*alone, *given), None).identity["version"]
        for given in ((), ("relevance.model=owner/other",), ("relevance.revision=abc",), ("relevance.ranker=judge",))
    }
    assert len(versions) == 4
    same = [ranker(settings(*alone, one), None).identity for one in ("judge.threshold=0.3", "relevance.batch_size=1")]
    assert same[0] == same[1] == ranker(settings(*alone), None).identity
    assert ranking_judges(settings()) == []


def test_a_ranker_that_cannot_be_had_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    fetch_ranker(settings("relevance.ranker=judge"))
    with pytest.raises(MissingPart, match=r"nobody/none.*--set relevance\.model=NAME.*--set relevance\.ranker=none"):
        fetch_ranker(settings("relevance.ranker=cross_encoder", "relevance.model=nobody/none"))


def test_only_models_in_use_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hub = "encoders.hub={kind: sentence_transformers, model: nobody/no-such-model}"
    fetch_models(settings("pool.retrievers=[bm25]", hub))
    with pytest.raises(MissingPart, match="nobody/no-such-model"):
        fetch_models(settings("pool.retrievers=[bm25, hub]", hub))


def test_an_estimate_is_for_judges_that_cost_something(run: Run) -> None:
    with pytest.raises(SettingsError, match=r"--estimate needs a judge with a price .* judge\.kind is embedded"):
        judge_estimates(settings(), run.tables())
