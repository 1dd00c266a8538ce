"""The settings of the planner that asks a language model, and what it lacks."""

from typing import Any

import pytest
from pydantic import ValidationError

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.mine.term_weighting.kinds.llm import KIND
from darklode.pipeline.mine.term_weighting.llm import LlmPlanner
from darklode.schemas.settings import CacheSettings
from helpers.commands import free_port
from helpers.fake_openai import FakeOpenAI

GIVEN = {"model": "m", "base_url": "http://127.0.0.1:1/v1"}


@pytest.mark.parametrize("missing", list(GIVEN))
def test_model_and_server_have_to_be_named(missing: str) -> None:
    with pytest.raises(ValidationError, match=r"kind llm needs planner\.model and planner\.base_url"):
        KIND(**GIVEN | {missing: ""})


@pytest.mark.parametrize(
    ("given", "same"),
    [({"base_url": "http://elsewhere/v1", "timeout": 3, "max_in_flight": 2}, True), ({"model": "n"}, False)],
)
def test_only_the_model_changes_what_is_planned(given: dict[str, Any], same: bool) -> None:
    assert (KIND(**GIVEN | given).decisive() == KIND(**GIVEN).decisive()) == same


def test_a_server_that_does_not_listen_or_a_key_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeOpenAI() as server:
        assert KIND(model="m", base_url=server.url).missing() == []
    nobody = f"http://127.0.0.1:{free_port()}/v1"
    assert KIND(model="m", base_url=nobody).missing() == [f"no server at {nobody[7:]}; start it, or correct base_url"]
    monkeypatch.delenv("PLANNER_KEY", raising=False)
    keyed = KIND(model="m", base_url=nobody, key_env="PLANNER_KEY")
    assert "PLANNER_KEY" in str(keyed.missing())
    monkeypatch.setenv("PLANNER_KEY", "secret")
    assert keyed.missing() == KIND(model="m", base_url=nobody).missing()


def test_it_builds_the_planner_and_learns_nothing(tmp_path: object) -> None:
    planner = KIND(**GIVEN).planner(Tables.empty("planner_terms"), CacheSettings(root=str(tmp_path)))
    assert isinstance(planner, LlmPlanner)
    assert not KIND.LEARNS
