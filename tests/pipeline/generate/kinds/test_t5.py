"""The local writer's settings: which model, and what lacks for it."""

from pathlib import Path

import pytest

from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.generate.kinds.t5 import T5Kind
from darklode.schemas.settings import Settings


def test_a_model_that_is_not_there_is_told_before_any_work(tmp_path: Path) -> None:
    settings = T5Kind(model=str(tmp_path / "none"))
    with pytest.raises(MissingPart, match="the folder does not exist"):
        settings.writer(Settings())
    assert settings.missing() != []
