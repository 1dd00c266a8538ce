"""The local encoder with a real model, all-MiniLM-L6-v2, and without the network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from darklode.pipeline.base.errors import DarklodeError, MissingPart, SettingsError
from darklode.pipeline.retrieve.encoders import sentence_transformers as module
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings as Settings
from darklode.pipeline.retrieve.encoders.sentence_transformers import (
    SentenceTransformersEncoder,
)
from helpers.minilm import MODEL, clone

constants = pytest.importorskip("huggingface_hub.constants")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TEXTS = [f"webhook {number} " + "retries with backoff " * (number % 5) for number in range(23)]


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def settings(**given: Any) -> Settings:
    return Settings.model_validate({"kind": "sentence_transformers", "model": str(MODEL), "device": "cpu"} | given)


@pytest.fixture(scope="module")
def bare() -> Callable[..., NDArray[np.float32]]:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(MODEL), device="cpu", local_files_only=True)

    def encode(texts: list[str]) -> NDArray[np.float32]:
        return np.asarray([model.encode([text], normalize_embeddings=True)[0] for text in texts])

    return encode


def test_vectors_are_the_models_in_the_order_of_the_texts(bare: Callable[..., NDArray[np.float32]]) -> None:
    encoder = SentenceTransformersEncoder(settings(batch_size=4))
    vectors = encoder.encode_documents(TEXTS)
    assert vectors.dtype == np.float32
    assert np.allclose(vectors, bare(TEXTS), atol=1e-5)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert encoder.dimensions == 384
    assert encoder.encode_queries([]).shape == (0, 384)


def test_prompts_are_put_before_the_texts(bare: Callable[..., NDArray[np.float32]]) -> None:
    encoder = SentenceTransformersEncoder(settings(query_prompt="query: ", document_prompt="passage: "))
    assert np.allclose(encoder.encode_queries(["tea"]), bare(["query: tea"]), atol=1e-5)
    assert np.allclose(encoder.encode_documents(["tea"]), bare(["passage: tea"]), atol=1e-5)


def test_the_models_own_default_prompt_is_off(tmp_path: Path, bare: Callable[..., NDArray[np.float32]]) -> None:
    prompts: dict[str, object] = {"prompts": {"query": "something else: "}, "default_prompt_name": "query"}
    model = clone(tmp_path / "prompted", config_sentence_transformers=prompts)
    encoder = SentenceTransformersEncoder(settings(model=str(model)))
    assert np.allclose(encoder.encode_queries(["tea"]), bare(["tea"]), atol=1e-5)


@pytest.mark.slow
def test_dimensions_are_cut_first_and_scaled_after(bare: Callable[..., NDArray[np.float32]]) -> None:
    encoder = SentenceTransformersEncoder(settings(truncate_dim=64))
    first = bare(TEXTS)[:, :64]
    assert encoder.dimensions == 64
    assert np.allclose(encoder.encode_documents(TEXTS), first / np.linalg.norm(first, axis=1, keepdims=True), atol=1e-5)


def test_texts_are_cut_to_max_tokens() -> None:
    encoder = SentenceTransformersEncoder(settings(max_seq_length=6))
    vectors = encoder.encode_documents(["one two three four", "one two three four five six"])
    assert np.allclose(vectors[0], vectors[1], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_gives_float32_rows_of_length_one(dtype: str, bare: Callable[..., NDArray[np.float32]]) -> None:
    vectors = SentenceTransformersEncoder(settings(dtype=dtype)).encode_documents(TEXTS[:3])
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    similarity = (vectors * bare(TEXTS[:3])).sum(axis=1)
    assert (similarity > 0.99).all()
    assert not np.allclose(vectors, bare(TEXTS[:3]), atol=1e-7)


@pytest.mark.parametrize(
    ("given", "said"), [({"max_seq_length": 513}, "at most 512"), ({"truncate_dim": 385}, "only 384")]
)
def test_more_than_the_model_has_is_refused(given: dict[str, int], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        SentenceTransformersEncoder(settings(**given))


@pytest.mark.slow
def test_two_devices_give_the_same_rows(monkeypatch: pytest.MonkeyPatch, bare: Callable[..., Any]) -> None:
    monkeypatch.setattr(module, "devices", lambda _device: ["cpu", "cpu"])
    encoder = SentenceTransformersEncoder(settings(batch_size=4))
    assert np.allclose(encoder.encode_documents(TEXTS), bare(TEXTS), atol=1e-5)


def test_a_broken_vector_names_the_text_and_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = SentenceTransformersEncoder(settings())
    rows = np.array([[1, 0], [np.nan, 0]], np.float32)
    monkeypatch.setattr(module, "encode_texts", lambda *_texts, **_options: rows)
    with pytest.raises(DarklodeError, match=r"'second'.*float32"):
        encoder.encode_documents(["first", "second"])


def test_a_missing_gpu_is_named() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(MissingPart, match="device cuda:1"):
        SentenceTransformersEncoder(settings(device="cuda:1"))


def test_a_model_that_cannot_be_fetched_is_said_in_a_few_words() -> None:
    with pytest.raises(MissingPart) as raised:
        SentenceTransformersEncoder(settings(model="acme/none", revision="v2"))
    said = str(raised.value)
    assert "hf download acme/none --revision v2" in said
    assert "HF_HOME" in said
    assert len(said) < 600
    assert raised.value.__suppress_context__


def test_a_folder_that_is_none_is_said() -> None:
    with pytest.raises(MissingPart, match="the folder does not exist"):
        SentenceTransformersEncoder(settings(model="./no/model"))


def cached(root: Path) -> Path:
    """The hub's local cache with the model as acme/minilm."""
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(COMMIT)
    return clone(root / "snapshots" / COMMIT)


def test_the_local_cache_serves_a_model_of_the_hub(tmp_path: Path) -> None:
    cached(tmp_path / "hub" / "models--acme--minilm")
    asked = settings(model="acme/minilm")
    encoder = SentenceTransformersEncoder(asked)
    assert encoder.encoder_id == asked.encoder_id()
    assert f"acme/minilm@{COMMIT}" in encoder.encoder_id
    assert encoder.encode_queries(["tea"]).shape == (1, 384)


def test_an_id_needs_a_known_revision() -> None:
    with pytest.raises(MissingPart, match="revision is unknown"):
        settings(model="acme/none").encoder_id()
    assert COMMIT in settings(model="acme/none", revision=COMMIT).encoder_id()


@pytest.mark.parametrize(
    "change",
    [
        {"query_prompt": "q"},
        {"document_prompt": "q"},
        {"max_seq_length": 9},
        {"truncate_dim": 9},
        {"dtype": "bfloat16"},
    ],
)
def test_the_id_names_all_that_changes_a_vector(change: dict[str, object]) -> None:
    assert settings(**change).encoder_id() != settings().encoder_id()
    assert settings(batch_size=7).encoder_id() == settings().encoder_id()


def test_a_folders_id_follows_its_files_not_its_place(tmp_path: Path) -> None:
    same = clone(tmp_path / "model")
    pooled = clone(tmp_path / "other" / "model", sentence_bert_config={"max_seq_length": 99})
    ids = [settings(model=str(folder)).encoder_id() for folder in (MODEL, same, pooled)]
    assert ids[0] == ids[1] != ids[2]


def test_other_weights_are_another_model(tmp_path: Path) -> None:
    folder = clone(tmp_path / "model")
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    weights.unlink()
    data[-1] ^= 1
    weights.write_bytes(data)
    assert settings(model=str(folder)).encoder_id() != settings().encoder_id()


def test_a_model_with_code_of_its_own_is_refused(tmp_path: Path) -> None:
    folder = clone(tmp_path / "model", config={"auto_map": {"AutoModel": "modeling_acme.AcmeModel"}})
    with pytest.raises(MissingPart, match=r"modeling_acme\.AcmeModel"):
        SentenceTransformersEncoder(settings(model=str(folder)))
