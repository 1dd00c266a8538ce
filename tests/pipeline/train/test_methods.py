"""Methods by their names, and what they need beside the base's own packages."""

import pytest

from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.train import methods
from darklode.pipeline.train.encoder_methods import TrainedEncoder
from darklode.pipeline.train.head_methods import ClosedForm, TrainedHead
from darklode.pipeline.train.methods import check_parts, method_of
from darklode.schemas.adaptation import AdaptSettings

from .conftest import Adapted

KINDS = {"linear": TrainedHead, "ffn": TrainedHead, "closed_form": ClosedForm}


@pytest.mark.parametrize("name", ["linear", "ffn", "closed_form", "lora", "top_n", "full"])
def test_each_name_is_a_method_with_settings_to_try(adapted: Adapted, name: str) -> None:
    method = method_of(AdaptSettings.model_validate({"method": name}), adapted.base)
    assert type(method) is KINDS.get(name, TrainedEncoder)
    assert len(method.tried) >= 3
    assert max(method.shares) >= 1


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("linear", "lora", "full"):
        check_parts(name)
    monkeypatch.setattr(methods, "find_spec", lambda name: None if name == "peft" else name)
    check_parts("full")
    with pytest.raises(MissingPart, match=r'method lora needs peft: pip install "darklode\[train\]"'):
        check_parts("lora")
