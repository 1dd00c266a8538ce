"""darklode generate: what the command turns into settings, and what it refuses before any work."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from darklode.flows.cli import app
from darklode.flows.jobs import generate_queries
from darklode.flows.jobs.generate_queries import retrievers
from darklode.pipeline.base.errors import ArtifactError, SettingsError
from darklode.schemas.settings import Settings
from helpers.adapted import build_to_adapt


def refusal(*words: str) -> BaseException | None:
    return CliRunner().invoke(app, ["generate", *words]).exception


def test_source_names_the_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_to_adapt(tmp_path / "run")
    seen: list[str] = []

    def steps(_source: object, writer: object, settings: Settings, _spread: object) -> list[object]:
        seen.append(settings.generate.kind)
        raise SettingsError(str(writer))

    monkeypatch.setattr(generate_queries, "steps", steps)
    model = ["--set", "judge.kind=llm", "--set", "judge.model=m", "--set", "judge.base_url=http://127.0.0.1:1/v1"]
    for words in (["--source", "llm", *model], ["--set", "generate.kind=llm", *model], []):
        error = refusal(str(tmp_path / "run"), "--out", str(tmp_path / "out"), *words)
        assert isinstance(error, SettingsError), error
    assert seen == ["llm", "llm", "ict"]


def test_an_unknown_source_and_a_folder_without_a_run_are_refused(tmp_path: Path) -> None:
    build_to_adapt(tmp_path / "run")
    unknown = refusal(str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--source", "gpt")
    assert "there is no kind 'gpt'" in str(unknown)
    assert isinstance(refusal(str(tmp_path / "none"), "--out", str(tmp_path / "out")), ArtifactError)


def test_who_is_to_be_trained_has_no_say() -> None:
    settings = Settings.model_validate(
        {"pool": {"retrievers": ["bm25", "character"]}, "generate": {"exclude_retrievers": ["character"]}}
    )
    assert list(retrievers(settings)) == ["bm25"]
