"""Settings of the recorded judge: the threshold, also of a run that is read back."""

from pathlib import Path
from typing import Any

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.judge.kinds.recorded import RecordedSettings
from darklode.schemas.settings import CacheSettings
from helpers.judge_tables import chunks
from helpers.runs import put


def judge_id(folder: Path, settings: RecordedSettings) -> str:
    run = Run(str(folder / "run"))
    put(run, "chunks", chunks("default", {"a#1": "text"}))
    return settings.builder(CacheSettings())(TenantChunks(all_tables(run), "default"), settings.cut).judge_id


@pytest.mark.parametrize("threshold", [{}, {"threshold": 0.5}, {"threshold": 0.7}])
def test_a_judge_whose_settings_are_read_back_is_the_same(tmp_path: Path, threshold: dict[str, Any]) -> None:
    (tmp_path / "verdicts.csv").write_text("query_id,chunk_id,relevance\nq,a#1,1\n")
    settings = RecordedSettings(verdicts=str(tmp_path / "verdicts.csv"), **threshold)
    read_back = RecordedSettings.model_validate(settings.model_dump(mode="json"))
    first = judge_id(tmp_path, settings)
    assert judge_id(tmp_path, read_back) == first
    assert read_back.identity == settings.identity
    assert first.endswith(f":{threshold['threshold']:g}" if threshold else ">=1")
