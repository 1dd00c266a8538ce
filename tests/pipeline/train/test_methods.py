"""Methods by their names."""

import pytest

from darklode.pipeline.train.encoder_methods import TrainedEncoder
from darklode.pipeline.train.head_methods import ClosedForm, TrainedHead, Whitened
from darklode.pipeline.train.methods import method_of
from darklode.schemas.adaptation import AdaptSettings

from .conftest import Adapted

KINDS = {"linear": TrainedHead, "ffn": TrainedHead, "closed_form": ClosedForm, "whitened": Whitened}


@pytest.mark.parametrize("name", ["linear", "ffn", "closed_form", "whitened", "lora", "top_n", "full"])
def test_each_name_is_a_method_with_settings_to_try(adapted: Adapted, name: str) -> None:
    method = method_of(AdaptSettings.model_validate({"method": name}), adapted.base)
    assert type(method) is KINDS.get(name, TrainedEncoder)
    assert len(method.tried) >= 3
    assert max(method.shares) >= 1
