"""The settings of judging: panels that can vote, thresholds that can be fitted, limits with a price."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from darklode.schemas.settings import Settings

LLM = {"kind": "llm", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
FITTED = {"threshold": "fitted", "human_labels": "labels.csv"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"panel_weights": [1, 1]}, "panel_weights needs 1 numbers"),
        ({"panel_weights": [0, 0], "panel": [LLM]}, "at least one of them above 0"),
        ({"panel": [LLM | {"threshold": "fitted"}]}, "set a number for the members of the panel"),
        ({"threshold": "fitted"}, "threshold fitted needs judge.human_labels"),
        (FITTED | {"panel": [LLM]}, "threshold fitted needs judge.vote=mean"),
        (FITTED | {"panel": [LLM], "vote": "weighted"}, "threshold fitted needs judge.vote=mean"),
        (LLM | {"spending_limit": 1}, "spending_limit needs prompt_price_per_million"),
        (LLM | {"token_limit": 9, "extra_body": {"max_tokens": None}}, "need a maximum reply length"),
        (LLM | {"token_limit": 9, "extra_body": {"max_tokens": "many"}}, "need a maximum reply length"),
        (LLM | {"token_limit": 9, "extra_body": {"max_tokens": 0}}, "need a maximum reply length"),
        (LLM | {"token_limit": 9, "extra_body": {"max_tokens": 9.5}}, "need a maximum reply length"),
    ],
)
def test_judges_that_contradict_themselves_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        Settings.model_validate({"judge": given})


@pytest.mark.parametrize(
    "given",
    [
        {"panel_weights": [0, 1], "panel": [LLM]},
        FITTED | {"panel": [LLM], "vote": "mean"},
        LLM | {"spending_limit": 1, "prompt_price_per_million": 0.1},
        LLM | {"token_limit": 9, "extra_body": {"max_tokens": None, "max_completion_tokens": 50}},
        LLM | {"extra_body": {"max_tokens": None}},
    ],
)
def test_what_just_agrees_is_taken(given: dict[str, Any]) -> None:
    assert Settings.model_validate({"judge": given}) != Settings()


def test_a_threshold_that_is_yet_to_be_fitted_has_the_kinds_own_cut() -> None:
    fitted = Settings.model_validate({"judge": FITTED}).judge
    assert fitted.cut == Settings().judge.cut
    assert Settings.model_validate({"judge": {"threshold": 0.7}}).judge.cut == 0.7


@pytest.mark.parametrize(
    ("judge", "can_fit"),
    [
        ({"kind": "cross_encoder", "model": "owner/name"}, True),
        ({"kind": "encoder", "encoder": "minilm"}, True),
        ({"kind": "learned", "human_labels": "labels.csv"}, True),
        ({"kind": "cross_encoder", "model": "owner/name", "panel": [{"kind": "embedded"}]}, False),
        ({"kind": "embedded"}, False),
        ({"kind": "llm", "model": "m", "base_url": "http://127.0.0.1:1/v1"}, False),
    ],
)
def test_grades_are_fitted_to_single_judges_with_scores(judge: dict[str, object], can_fit: bool) -> None:
    encoders = {"minilm": {"kind": "sentence_transformers", "model": "all-MiniLM-L6-v2"}}
    settings = Settings.model_validate({"judge": judge, "encoders": encoders})
    assert settings.judge.can_fit_grades is can_fit
