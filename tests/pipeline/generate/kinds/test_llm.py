"""The writer that asks the judge's model: whose servers it takes."""

from pathlib import Path

import pytest

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.generate.kinds.llm import LlmWriterKind
from darklode.schemas.settings import CacheSettings, Settings


def test_it_needs_a_judge_that_is_a_model(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"judge\.kind is embedded"):
        LlmWriterKind().writer(Settings(cache=CacheSettings(root=str(tmp_path))))


def test_the_judges_model_names_it(tmp_path: Path) -> None:
    judge = {"kind": "llm", "model": "qwen", "base_url": "http://127.0.0.1:9/v1"}
    settings = Settings.model_validate({"judge": judge, "cache": {"root": str(tmp_path)}})
    assert LlmWriterKind().writer(settings).generator_id.startswith("llm writer 1 qwen ")
