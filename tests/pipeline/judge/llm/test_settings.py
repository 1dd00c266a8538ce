"""Settings of the LLM judge: several servers, required keys, and limits that need a maximum reply length."""

from typing import Any

import pytest
from pydantic import ValidationError

from darklode.pipeline.judge.llm.settings import LlmSettings

GIVEN: dict[str, Any] = {"model": "m", "base_url": "http://a/v1"}


def test_servers_are_a_list_or_separated_by_commas() -> None:
    servers = ("http://a/v1", "http://b/v1")
    assert LlmSettings(model="m", base_url="http://a/v1, http://b/v1,").base_url == servers  # type: ignore[arg-type]
    assert LlmSettings(model="m", base_url=servers).base_url == servers


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model": ""}, r"needs judge\.model"),
        ({"base_url": ()}, r"needs judge\.base_url"),
        ({"base_url": "a/v1"}, "must be URLs"),
        ({"base_url": "http://ann:secret@a/v1"}, "must not contain a user name, password or query"),
        ({"token_limit": 9, "extra_body": {"max_tokens": None}}, "need a maximum reply length"),
        (
            {"spending_limit": 1, "prompt_price_per_million": 1, "extra_body": {"max_tokens": None}},
            "need a maximum reply length",
        ),
    ],
)
def test_what_cannot_be_used_is_an_error(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        LlmSettings(**GIVEN | changed)


def test_another_parameter_may_limit_replies() -> None:
    extra_body = {"max_tokens": None, "max_completion_tokens": 9}
    assert LlmSettings(**GIVEN, token_limit=9, extra_body=extra_body).token_limit == 9
