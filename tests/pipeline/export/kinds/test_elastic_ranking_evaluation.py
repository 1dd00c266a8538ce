"""Requests follow the documentation of ranking evaluation."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.export.formats import export
from helpers.finished_run import CHUNK_IDS, QUERY_IDS, QUERY_TEXTS, finished_run

# Elasticsearch 8: "Ranking evaluation API".
RANK_EVAL_BODY = {
    "type": "object",
    "additionalProperties": False,
    "required": ["requests", "metric"],
    "properties": {
        "requests": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["id", "request", "ratings"],
                "properties": {
                    "id": {"type": "string", "minLength": 1},
                    "request": {"type": "object", "required": ["query"], "properties": {"query": {"type": "object"}}},
                    "ratings": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["_index", "_id", "rating"],
                            "properties": {
                                "_index": {"type": "string"},
                                "_id": {"type": "string"},
                                "rating": {"type": "integer", "minimum": 0},
                            },
                        },
                    },
                },
            },
        },
        "metric": {
            "type": "object",
            "additionalProperties": False,
            "required": ["dcg"],
            "properties": {
                "dcg": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"k": {"type": "integer", "minimum": 1}, "normalize": {"type": "boolean"}},
                }
            },
        },
    },
}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return finished_run(str(tmp_path / "run"), ("t",))


def test_rank_eval_requests_follow_their_documentation(run: Run, tmp_path: Path) -> None:
    name, index = "elastic-ranking-evaluation", "it's {docs}"
    export(run, name, tmp_path / "{split}", options={"index": index, "level": "chunk"})
    body = json.loads((tmp_path / "{split}" / "rank_eval.test.json").read_text(encoding="utf-8"))
    Draft202012Validator(RANK_EVAL_BODY).validate(body)
    (request,) = body["requests"]
    assert (request["id"], request["request"]) == (QUERY_IDS[3], {"query": {"multi_match": {"query": QUERY_TEXTS[3]}}})
    assert {rating["_index"] for rating in request["ratings"]} == {index}
    assert {rating["_id"]: rating["rating"] for rating in request["ratings"]} == dict(
        zip(CHUNK_IDS, (1, 0, 1, 0), strict=True)
    )
