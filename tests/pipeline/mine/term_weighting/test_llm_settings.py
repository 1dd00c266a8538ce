"""Settings of the LLM term weighter: what is required, and what changes its identity."""

from typing import Any

import pytest
from pydantic import ValidationError

from darklode.pipeline.mine.term_weighting.llm_settings import LlmTermWeighterSettings

GIVEN = {"model": "m", "base_url": "http://127.0.0.1:1/v1"}


@pytest.mark.parametrize("missing", list(GIVEN))
def test_model_and_server_have_to_be_named(missing: str) -> None:
    with pytest.raises(ValidationError, match=r"kind llm needs term_weighting\.model and term_weighting\.base_url"):
        LlmTermWeighterSettings(**GIVEN | {missing: ""})


@pytest.mark.parametrize(
    ("given", "same"),
    [({"base_url": "http://elsewhere/v1", "timeout": 3, "max_concurrency": 2}, True), ({"model": "n"}, False)],
)
def test_only_the_model_changes_the_weights(given: dict[str, Any], same: bool) -> None:
    assert (LlmTermWeighterSettings(**GIVEN | given).decisive() == LlmTermWeighterSettings(**GIVEN).decisive()) == same
