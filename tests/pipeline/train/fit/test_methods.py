"""Methods by their names."""

from typing import Any

import pytest

from darklode.pipeline.train.fit.encoder_methods import EncoderMethod
from darklode.pipeline.train.fit.head_methods import ClosedFormMethod, HeadMethod, WhiteningMethod
from darklode.pipeline.train.fit.method_registry import create_method
from darklode.pipeline.train.fit.methods import PerTaskCache
from darklode.schemas.adaptation import AdaptSettings

from ..conftest import Adapted

KINDS = {"linear": HeadMethod, "ffn": HeadMethod, "closed_form": ClosedFormMethod, "whitened": WhiteningMethod}


@pytest.mark.parametrize("name", ["linear", "ffn", "closed_form", "whitened", "lora", "top_n", "full"])
def test_each_name_is_a_method_with_settings_to_try(adapted: Adapted, name: str) -> None:
    method = create_method(AdaptSettings.model_validate({"method": name}), adapted.base)
    assert type(method) is KINDS.get(name, EncoderMethod)
    assert len(method.hyperparameters) >= (1 if type(method) is EncoderMethod else 3)
    assert max(method.shares) >= 1


def test_what_is_found_of_a_task_is_found_once() -> None:
    asked: list[Any] = []
    first, second = object(), object()
    found: PerTaskCache[int] = PerTaskCache(lambda task: asked.append(task) or len(asked))
    given: list[Any] = [first, first, second, second, first]
    assert [found(task) for task in given] == [1, 1, 2, 2, 3]
    assert asked == [first, second, first]
