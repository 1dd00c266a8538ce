"""The presets with real models: whole, and with the prompts their models were trained with."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest
import yaml

from darklode.pipeline.retrieve.encoders.kinds.openai import OpenAISettings
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.schemas.settings import Settings

TASK = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"


def read(name: str) -> dict[str, Any]:
    """A preset as it is written."""
    given = yaml.safe_load(files("darklode.flows").joinpath("presets", f"{name}.yaml").read_text(encoding="utf-8"))
    assert isinstance(given, dict)
    return given


def preset(name: str) -> Settings:
    """A preset with the defaults around it."""
    return Settings.model_validate(read(name))


@pytest.mark.parametrize("name", ["devrev", "open"])
def test_seven_retrievers_each_with_its_encoder(name: str) -> None:
    settings = preset(name)
    first, *dense = settings.pool.retrievers
    assert first == "bm25"
    assert dense == list(settings.encoders)
    assert len(dense) == 6


PAPER_CLEANING = {"min_percentile": 25, "max_percentile": 75, "language": "en", "max_per_cluster": 1}


@pytest.mark.parametrize(("name", "cleaning"), [("devrev", PAPER_CLEANING), ("open", {})])
def test_a_preset_holds_only_what_differs(name: str, cleaning: dict[str, object]) -> None:
    given = read(name)
    assert set(given) - {"clean"} == {"encoders", "pool"}
    assert given.get("clean", {}) == cleaning
    assert set(given["pool"]) == {"retrievers"}
    for encoder in given["encoders"].values():
        kind = OpenAISettings if encoder["kind"] == "openai" else SentenceTransformersSettings
        defaults = {key: field.default for key, field in kind.model_fields.items()}
        assert not [key for key, value in encoder.items() if key != "kind" and value == defaults[key]]


def test_open_needs_no_key_and_no_server() -> None:
    assert {encoder.kind for encoder in preset("open").encoders.values()} == {"sentence_transformers"}


@pytest.mark.parametrize(
    ("given", "name", "prompt"),
    [
        ("devrev", "Qwen3-Embedding-8B", TASK),
        ("devrev", "gte-Qwen2-7B-instruct", f"{TASK} "),
        ("devrev", "SFR-Embedding-Mistral", f"{TASK} "),
        ("open", "qwen3-embedding-4b", TASK),
        ("open", "e5-mistral-7b", f"{TASK} "),
        ("open", "mxbai-embed-large", "Represent this sentence for searching relevant passages: "),
        ("open", "bge-m3", ""),
    ],
)
def test_instructed_models_get_their_instruction_before_queries_only(given: str, name: str, prompt: str) -> None:
    encoder = preset(given).encoders[name]
    assert encoder.query_prompt == prompt
    assert encoder.document_prompt == ""


def test_cohere_is_told_which_side_a_text_is_on_and_no_dimensions() -> None:
    encoder = preset("devrev").encoders["embed-english-v3"]
    assert isinstance(encoder, OpenAISettings)
    assert encoder.query_extra_body == {"input_type": "search_query"}
    assert encoder.document_extra_body == {"input_type": "search_document"}
    assert encoder.dimensions is None


def test_limits_of_the_providers_are_kept() -> None:
    encoders = preset("devrev").encoders
    limits = {
        name: (encoder.batch_size, encoder.max_input_tokens)
        for name, encoder in encoders.items()
        if isinstance(encoder, OpenAISettings) and encoder.api_key_env
    }
    assert limits == {
        "gemini-embedding-001": (100, 2048),
        "text-embedding-3-large": (2048, 8191),
        "embed-english-v3": (96, 512),
    }
    assert len({encoder.api_key_env for encoder in encoders.values() if isinstance(encoder, OpenAISettings)}) == 4
