"""Settings of the LLM query writer: defaults and bounds."""

from typing import Any

import pytest
from pydantic import ValidationError

from darklode.pipeline.generate.llm_settings import LlmWriterSettings


def test_the_default_prompt_shows_eight_examples() -> None:
    settings = LlmWriterSettings()
    assert (settings.kind, settings.prompt, settings.n_examples) == ("llm", "default", 8)


@pytest.mark.parametrize("changed", [{"n_examples": -1}, {"temperature": -0.1}, {"max_texts": 0}])
def test_values_out_of_bounds_are_errors(changed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=rf"{next(iter(changed))}\n +Input should be greater than"):
        LlmWriterSettings(**changed)
