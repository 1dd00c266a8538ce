"""Settings that are paths mean the same from any folder."""

import re
from pathlib import Path
from typing import Any

import pytest

from darklode.schemas.paths import PathField, resolve_paths, to_absolute
from darklode.schemas.setting_names import keys
from darklode.schemas.settings import Settings

SAYS_PATH = re.compile(r"\b(files? of|CSV|local folder|a folder|folder or s3|folder of)\b", re.I)


def test_every_setting_that_speaks_of_files_or_folders_is_marked() -> None:
    marked = {key.path for key in keys() if any(isinstance(one, PathField) for one in key.field.metadata)}
    said = {key.path for key in keys() if SAYS_PATH.search(key.field.description or "")}
    assert said == marked
    assert {"judge.human_labels", "cache.root", "term_weighting.table", "evaluate.run_files", "judge.model"} <= marked


@pytest.mark.parametrize(
    ("values", "whole"),
    [
        (
            {"term_weighting": {"kind": "table", "table": "terms.csv"}},
            {"term_weighting": {"kind": "table", "table": "BASE/terms.csv"}},
        ),
        ({"judge": {"human_labels": "../labels.csv"}}, {"judge": {"human_labels": "BASE/../labels.csv"}}),
        ({"evaluate": {"run_files": ["a.run", "/b.run"]}}, {"evaluate": {"run_files": ["BASE/a.run", "/b.run"]}}),
        ({"cache": {"root": "s3://bucket/cache"}}, {"cache": {"root": "s3://bucket/cache"}}),
        (
            {"encoders": {"own": {"kind": "sentence_transformers", "model": "e5"}}},
            {"encoders": {"own": {"kind": "sentence_transformers", "model": "BASE/e5"}}},
        ),
        (
            {"judge": {"panel": [{"kind": "cross_encoder", "model": "e5"}, {"kind": "llm", "model": "e5"}]}},
            {"judge": {"panel": [{"kind": "cross_encoder", "model": "BASE/e5"}, {"kind": "llm", "model": "e5"}]}},
        ),
        ({"judge": {"kind": "llm", "prompt": "mine"}}, {"judge": {"kind": "llm", "prompt": "BASE/mine"}}),
    ],
    ids=str,
)
def test_a_relative_path_begins_at_its_base(values: dict[str, Any], whole: dict[str, Any], tmp_path: Path) -> None:
    for folder in ("e5", "mine", "binary"):
        (tmp_path / folder).mkdir()

    def based(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: based(one) for key, one in value.items()}
        if isinstance(value, list):
            return [based(one) for one in value]
        return value.replace("BASE", str(tmp_path))

    assert resolve_paths(values, tmp_path, Settings) == based(whole)


@pytest.mark.parametrize(
    "values",
    [
        {"encoders": {"e": {"kind": "sentence_transformers", "model": "BAAI/bge-m3"}}},
        {"judge": {"kind": "llm", "prompt": "binary"}},
        {"judge": {"kind": "no such kind", "model": "e5"}},
        {"judge": "embedded", "evaluate": {"human_labels": None, "run_files": 3}, "unknown": {"x": "y"}},
        {"encoders": ["e"], "cache": {"root": ""}},
    ],
    ids=str,
)
def test_what_is_no_path_or_no_setting_stays(values: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "binary").mkdir()
    assert resolve_paths(values, tmp_path, Settings) == values


def test_a_home_is_a_place_of_its_own() -> None:
    assert to_absolute("~/x", Path("/base")) == str(Path.home() / "x")
