"""Settings of the LLM term weighter, and what is missing for it."""

import pytest

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.mine.term_weighting.kinds.llm import KIND
from darklode.pipeline.mine.term_weighting.llm import LlmTermWeighter
from darklode.schemas.settings import CacheSettings
from helpers.commands import free_port
from helpers.fake_openai import FakeOpenAI

GIVEN = {"model": "m", "base_url": "http://127.0.0.1:1/v1"}


def test_a_server_that_does_not_listen_or_a_key_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeOpenAI() as server:
        assert KIND(model="m", base_url=server.url).missing() == []
    nobody = f"http://127.0.0.1:{free_port()}/v1"
    assert KIND(model="m", base_url=nobody).missing() == [f"no server at {nobody[7:]}; start it, or correct base_url"]
    monkeypatch.delenv("PLANNER_KEY", raising=False)
    keyed = KIND(model="m", base_url=nobody, api_key_env="PLANNER_KEY")
    assert "PLANNER_KEY" in str(keyed.missing())
    monkeypatch.setenv("PLANNER_KEY", "secret")
    assert keyed.missing() == KIND(model="m", base_url=nobody).missing()


def test_it_builds_the_term_weighter_and_learns_nothing(tmp_path: object) -> None:
    weighter = KIND(**GIVEN).term_weighter(Tables.empty("learned_term_weights"), CacheSettings(root=str(tmp_path)))
    assert isinstance(weighter, LlmTermWeighter)
    assert not KIND.LEARNS
