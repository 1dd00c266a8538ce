"""Judgment lists follow the documentation of the Search Relevance Workbench."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.export.formats import export
from helpers.finished_run import CHUNK_IDS, QUERY_TEXTS, finished_run

# OpenSearch 3: Search Relevance Workbench, "Importing judgments".
IMPORT_BODY = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "type", "judgmentRatings"],
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "description": {"type": "string"},
        "type": {"const": "IMPORT_JUDGMENT"},
        "judgmentRatings": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["query", "ratings"],
                "properties": {
                    "query": {"type": "string", "minLength": 1},
                    "ratings": {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["docId", "rating"],
                            "properties": {
                                "docId": {"type": "string"},
                                "rating": {"type": "string", "pattern": r"^\d+\.\d+$"},
                            },
                        },
                    },
                },
            },
        },
    },
}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return finished_run(str(tmp_path / "run"), ("t",))


def test_the_workbench_body_follows_its_documentation(run: Run, tmp_path: Path) -> None:
    export(run, "search-relevance", tmp_path / "out", options={"level": "chunk"})
    body = json.loads((tmp_path / "out" / "judgments.train.json").read_text(encoding="utf-8"))
    Draft202012Validator(IMPORT_BODY).validate(body)
    assert [entry["query"] for entry in body["judgmentRatings"]] == [QUERY_TEXTS[0], QUERY_TEXTS[1]]
    ratings = {rating["docId"]: rating["rating"] for rating in body["judgmentRatings"][0]["ratings"]}
    assert ratings == dict(zip(CHUNK_IDS, ("1.0", "0.0", "1.0", "0.0"), strict=True))
