"""Encoders of fastembed with tiny models, compared with raw onnxruntime; nothing here speaks of quality."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from darklode.pipeline.base.errors import DarklodeError, MissingPart, SettingsError
from darklode.pipeline.retrieve.encoders.fastembed import FastembedEncoder, FastembedModel
from helpers.tiny_onnx import COMMIT, DIMENSIONS, N_TOKENS, into_hub_cache, tiny_cross_encoder, tiny_encoder

pytest.importorskip("fastembed", reason="fastembed is not installed")
onnxruntime = pytest.importorskip("onnxruntime")
constants = pytest.importorskip("huggingface_hub.constants")
from tokenizers import Tokenizer  # noqa: E402

TEXTS = ["webhook " * (number % 4) + f"retry {number}" for number in range(23)]
BGE, BGE_REPOSITORY, BGE_GRAPH = "BAAI/bge-small-en-v1.5", "Qdrant/bge-small-en-v1.5-onnx-Q", "model_optimized.onnx"


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("models") / "tiny")


def settings(model: Path | str, **values: Any) -> FastembedModel:
    return FastembedModel.model_validate({"model": str(model)} | values)


def expected(model: Path, texts: list[str], pooling: str, graph: str = "onnx/model.onnx") -> NDArray[np.float32]:
    """Unit vectors by onnxruntime alone, one text at a time, so without padding."""
    session = onnxruntime.InferenceSession(str(model / graph))
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.enable_truncation(N_TOKENS)
    rows = []
    for text in texts:
        (tokens,) = session.run(None, {"input_ids": np.array([tokenizer.encode(text).ids], np.int64)})[0]
        row = {"mean": tokens.mean(axis=0), "cls": tokens[0], "last_token": tokens[-1]}[pooling]
        rows.append(row / np.linalg.norm(row))
    return np.array(rows, np.float32)


@pytest.mark.parametrize(
    ("declared", "pooling"), [("mean_tokens", "mean"), ("cls_token", "cls"), ("lasttoken", "last_token")]
)
def test_vectors_are_those_of_onnxruntime_in_the_order_of_the_texts(
    tmp_path: Path, declared: str, pooling: str
) -> None:
    folder = tiny_encoder(tmp_path / "tiny", pooling=declared)
    encoder = FastembedEncoder(settings(folder, batch_size=4))
    vectors = encoder.encode_documents(TEXTS)
    assert vectors.dtype == np.float32
    assert np.allclose(vectors, expected(folder, TEXTS, pooling), atol=1e-6)
    assert encoder.dimensions == DIMENSIONS
    assert encoder.encode_queries([]).shape == (0, DIMENSIONS)


def test_batches_give_each_text_once(folder: Path) -> None:
    batches = list(FastembedEncoder(settings(folder, batch_size=1)).encode_batches(TEXTS * 3, queries=True))
    assert len(batches) == 3, "32 forward passes of one text each"
    places = np.concatenate([places for places, _ in batches])
    assert sorted(places) == list(range(69))
    vectors = np.concatenate([vectors for _, vectors in batches])
    assert np.allclose(vectors, expected(folder, [(TEXTS * 3)[place] for place in places], "mean"), atol=1e-6)


def test_prompts_are_put_before_the_texts(folder: Path) -> None:
    encoder = FastembedEncoder(settings(folder, query_prompt="query: ", document_prompt="passage: "))
    assert np.allclose(encoder.encode_queries(["tea"]), expected(folder, ["query: tea"], "mean"), atol=1e-6)
    assert np.allclose(encoder.encode_documents(["tea"]), expected(folder, ["passage: tea"], "mean"), atol=1e-6)


def test_queries_and_documents_go_through_fastembeds_own_methods(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model such as jina-embeddings-v3 encodes both differently."""
    encoder = FastembedEncoder(settings(folder))
    sides = {"query_embed": np.eye(2)[:1], "passage_embed": np.eye(2)[1:]}
    for name, rows in sides.items():
        monkeypatch.setattr(encoder._model, name, lambda _texts, batch_size, rows=rows: iter(rows))
    assert encoder.encode_queries(["tea"]).tolist() == [[1, 0]]
    assert encoder.encode_documents(["tea"]).tolist() == [[0, 1]]


def test_a_model_of_the_list_has_the_lists_pooling(tmp_path: Path) -> None:
    snapshot = into_hub_cache(tiny_encoder(tmp_path / "tiny", BGE_GRAPH), tmp_path / "hub", BGE_REPOSITORY)
    encoder = FastembedEncoder(settings(BGE))
    assert np.allclose(encoder.encode_queries(TEXTS), expected(snapshot, TEXTS, "cls", BGE_GRAPH), atol=1e-6)
    assert encoder.encoder_id == f"fastembed:{BGE}@{COMMIT}:prompts=none:pooling=OnnxTextEmbedding"


def test_everything_that_changes_a_vector_is_in_the_id(folder: Path, tmp_path: Path) -> None:
    other = tiny_encoder(tmp_path / "tiny", seed=8)
    pooled = tiny_encoder(tmp_path / "pooled", pooling="cls_token")
    changed = [settings(folder, query_prompt="a"), settings(folder, document_prompt="a")]
    ids = [case.encoder_id() for case in (settings(folder), *changed, settings(other), settings(pooled))]
    assert len(set(ids)) == 5
    assert ids[-1].endswith(":pooling=cls")
    assert ids[0].startswith("fastembed:tiny@files-")
    assert ids[0].endswith(":prompts=none:pooling=mean")
    assert settings(folder, batch_size=5).encoder_id() == ids[0]
    assert FastembedEncoder(settings(folder)).encoder_id == ids[0]


def test_sentence_transformers_newer_files_are_read_too(folder: Path, tmp_path: Path) -> None:
    newer = tiny_encoder(tmp_path / "tiny")
    (newer / "1_Pooling" / "config.json").write_text('{"embedding_dimension": 8, "pooling_mode": "cls"}')
    types = ["base.modules.transformer.Transformer", "modules.pooling.Pooling", "models.Normalize"]
    (newer / "modules.json").write_text(json.dumps([{"type": f"sentence_transformers.{name}"} for name in types]))
    assert settings(newer).folder_pooling == "cls"
    assert settings(folder).folder_pooling == "mean"
    assert settings(BGE).folder_pooling is None


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("1_Pooling/config.json", '{"pooling_mode": ["cls", "max"]}', r"no pooling \['cls', 'max'\]"),
        ("1_Pooling/config.json", '{"pooling_mode_max_tokens": true}', "no pooling max_tokens"),
        ("modules.json", '[{"type": "sentence_transformers.models.Dense"}]', "cannot run its module Dense"),
    ],
)
def test_what_fastembed_cannot_run_is_refused(tmp_path: Path, file: str, content: str, message: str) -> None:
    folder = tiny_encoder(tmp_path / "tiny")
    (folder / file).write_text(content)
    with pytest.raises(SettingsError, match=message):
        FastembedEncoder(settings(folder))


def test_a_graph_that_does_not_fit_the_pooling_is_refused(tmp_path: Path) -> None:
    unpooled = tiny_encoder(tmp_path / "unpooled", pooling=None)
    with pytest.raises(SettingsError, match=r"does not fit pooling disabled .* add .*1_Pooling/config\.json"):
        FastembedEncoder(settings(unpooled))
    flat = tiny_cross_encoder(tmp_path / "flat", labels=3)  # its output has the shape of sentence vectors
    (flat / "1_Pooling").mkdir()
    for mode in ("cls", "mean"):
        (flat / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": mode}))
        with pytest.raises(SettingsError, match=f"does not fit pooling {mode}"):
            FastembedEncoder(settings(flat))


def test_a_model_that_is_not_here_says_how_to_fetch_it() -> None:
    with pytest.raises(MissingPart, match="hf download"):
        FastembedEncoder(settings(BGE))


def test_a_vector_that_is_no_number_names_the_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = FastembedEncoder(settings(folder))
    rows = np.array([[1, 0], [np.nan, 0]], np.float32)
    monkeypatch.setattr(encoder, "_embed", lambda _texts, queries: rows)
    with pytest.raises(DarklodeError, match=r"NaN or infinity for 'second'.*another precision"):
        encoder.encode_documents(["first", "second"])
