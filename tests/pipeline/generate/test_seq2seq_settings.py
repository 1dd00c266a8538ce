"""Settings of the sequence-to-sequence query writer: defaults and bounds."""

from typing import Any

import pytest
from pydantic import ValidationError

from darklode.pipeline.generate.seq2seq_settings import Seq2SeqSettings


def test_the_defaults_are_those_of_doct5query() -> None:
    settings = Seq2SeqSettings()
    assert (settings.kind, settings.max_new_tokens, settings.top_k) == ("t5", 64, 10)


@pytest.mark.parametrize("changed", [{"max_seq_length": 0}, {"max_new_tokens": 0}, {"top_k": 0}])
def test_values_out_of_bounds_are_errors(changed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=rf"{next(iter(changed))}\n +Input should be greater than"):
        Seq2SeqSettings(**changed)
