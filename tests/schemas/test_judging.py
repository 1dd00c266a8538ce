"""The settings of judging: panels that can vote, thresholds that can be fitted, limits with a price."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from darklode.schemas.settings import Settings

LLM = {"kind": "llm", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
FITTED = {"threshold": "fitted", "human": "labels.csv"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"weights": [1, 1]}, "weights must name 1 numbers"),
        ({"weights": [0, 0], "panel": [LLM]}, "and one above 0"),
        ({"panel": [LLM | {"threshold": "fitted"}]}, "give members of the panel a number"),
        ({"threshold": "fitted"}, "threshold fitted needs judge.human_labels"),
        (FITTED | {"panel": [LLM]}, "threshold fitted needs judge.vote mean"),
        (LLM | {"spending_limit": 1}, "spending_limit needs a price"),
        (LLM | {"token_limit": 9, "parameters": {"max_tokens": None}}, "replies of a limited length"),
        (LLM | {"token_limit": 9, "parameters": {"max_tokens": "many"}}, "replies of a limited length"),
        (LLM | {"token_limit": 9, "parameters": {"max_tokens": 0}}, "replies of a limited length"),
        (LLM | {"token_limit": 9, "parameters": {"max_tokens": 9.5}}, "replies of a limited length"),
    ],
)
def test_judges_that_contradict_themselves_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        Settings.model_validate({"judge": given})


@pytest.mark.parametrize(
    "given",
    [
        {"weights": [0, 1], "panel": [LLM]},
        FITTED | {"panel": [LLM], "vote": "mean"},
        LLM | {"spending_limit": 1, "prompt_price_per_million": 0.1},
        LLM | {"token_limit": 9, "parameters": {"max_tokens": None, "max_completion_tokens": 50}},
        LLM | {"parameters": {"max_tokens": None}},
    ],
)
def test_what_just_agrees_is_taken(given: dict[str, Any]) -> None:
    assert Settings.model_validate({"judge": given}) != Settings()


def test_a_threshold_that_is_yet_to_be_fitted_has_the_kinds_own_cut() -> None:
    fitted = Settings.model_validate({"judge": FITTED}).judge
    assert fitted.cut == Settings().judge.cut
    assert Settings.model_validate({"judge": {"threshold": 0.7}}).judge.cut == 0.7
