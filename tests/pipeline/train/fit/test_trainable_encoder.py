"""Encoders: how many numbers each method trains, by formula, and where they begin."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, Qwen3Config, XLMRobertaConfig

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.models.loading import load_model
from darklode.pipeline.train.data.dataset import QuerySet
from darklode.pipeline.train.fit.trainable_encoder import (
    START_BIAS,
    START_TENSOR,
    TrainableEncoder,
    add_lora,
    trainable,
)
from darklode.pipeline.train.fit.whitening import whiten
from darklode.schemas.adaptation import AdaptSettings
from helpers.adapted import model_in

from ..conftest import Adapted

ARCTIC = XLMRobertaConfig(
    vocab_size=250_002, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096,
    max_position_embeddings=8194, type_vocab_size=1,
)  # fmt: skip
QWEN = Qwen3Config(
    vocab_size=151_665, hidden_size=2560, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8,
    head_dim=128, intermediate_size=9728,
)  # fmt: skip
ARCTIC_LAYER = 4 * (1024**2 + 1024) + (2 * 1024 * 4096 + 4096 + 1024) + 2 * 2 * 1024
QWEN_LAYER = 2560 * 128 * (2 * 32 + 2 * 8) + 3 * 2560 * 9728 + 2 * 2560 + 2 * 128


def counted(config: XLMRobertaConfig | Qwen3Config, **adapt: object) -> int:
    """Numbers that a method trains on a model without weights."""
    with torch.device("meta"):
        model = AutoModel.from_config(config)
        settings = AdaptSettings.model_validate(adapt)
        if settings.method == "lora":
            add_lora(model, settings)
        return sum(one.numel() for one in trainable(model, settings).values())


@pytest.mark.parametrize(("config", "wanted"), [(ARCTIC, 566_705_152), (QWEN, 4_021_774_336)], ids=["arctic", "qwen"])
def test_full_is_table_5s_count(config: XLMRobertaConfig | Qwen3Config, wanted: int) -> None:
    assert counted(config, method="full") == wanted


@pytest.mark.parametrize(
    ("config", "a_rank", "layers", "wanted"),
    [
        (ARCTIC, 4 * (1024 + 1024) + 2 * (1024 + 4096), 24, 3_538_944),
        (QWEN, (2560 + 4096) * 2 + 2 * (2560 + 1024) + 3 * (2560 + 9728), 36, 16_515_072),
    ],
    ids=["arctic", "qwen"],
)
def test_lora_is_table_5s_count(config: XLMRobertaConfig | Qwen3Config, a_rank: int, layers: int, wanted: int) -> None:
    for rank in (8, 128):
        assert counted(config, method="lora", lora_rank=rank) == rank * layers * a_rank == wanted * rank // 8


@pytest.mark.parametrize(
    ("config", "layer", "norm", "wanted"),
    [
        (ARCTIC, ARCTIC_LAYER, 0, (12_596_224, 25_192_448, 50_384_896, 100_769_792)),
        (QWEN, QWEN_LAYER, 2560, (100_933_376, 201_864_192, 403_725_824, 807_449_088)),
    ],
    ids=["arctic", "qwen"],
)
def test_the_last_layers_are_table_5s_count(
    config: XLMRobertaConfig | Qwen3Config, layer: int, norm: int, wanted: tuple[int, ...]
) -> None:
    for n, count in zip((1, 2, 4, 8), wanted, strict=True):
        assert counted(config, method="top_n", top_layers=n) == n * layer + norm == count


def test_lora_lies_on_the_named_layers_alone() -> None:
    whole = counted(ARCTIC, method="lora", lora_rank=8)
    some = counted(ARCTIC, method="lora", lora_rank=8, target_modules=("query", "value"))
    assert some == 8 * 24 * 2 * (1024 + 1024) < whole
    with pytest.raises(
        SettingsError, match=r"adapt\.target_modules q_proj: layers of this encoder end in dense, key, query"
    ):
        counted(ARCTIC, method="lora", target_modules=("q_proj",))
    with pytest.raises(SettingsError, match=r"adapt\.top_layers 25: the encoder has only 24 layers"):
        counted(ARCTIC, method="top_n", top_layers=25)


@pytest.mark.parametrize("method", ["lora", "top_n", "full"])
def test_it_begins_as_the_base_and_comes_back_to_it(adapted: Adapted, method: str) -> None:
    settings = model_in(adapted.root)
    adapt = AdaptSettings.model_validate({"method": method, "lora_rank": 4, "top_layers": 1})
    encoder = TrainableEncoder(load_model(settings, "cpu"), settings, adapt)
    asked = QuerySet.from_texts(["how badu", "  ", "how befi kuma"], adapted.base)
    np.testing.assert_allclose(encoder.vectors(asked), asked.vectors, atol=1e-6)
    assert not encoder.vectors(asked)[1].any(), "a blank query has no vector"
    draws = np.random.default_rng(0)
    moved = {name: one + draws.normal(0, 0.3, one.shape).astype(np.float32) for name, one in encoder.state().items()}
    began = np.eye(8, dtype=np.float32) + draws.normal(0, 0.3, (8, 8)).astype(np.float32)
    start = {START_TENSOR: began, START_BIAS: draws.normal(0, 0.3, 8).astype(np.float32)}
    encoder.restore(moved)
    plain = encoder.vectors(asked)
    encoder.restore(moved | start, 1.0)
    whole = encoder.vectors(asked)
    np.testing.assert_allclose(whole, whiten(plain, began, start[START_BIAS]), atol=1e-6)
    assert np.abs(whole - asked.vectors).max() > 1e-2
    encoder.restore(moved | start, 0.0)
    np.testing.assert_allclose(encoder.vectors(asked), asked.vectors, atol=1e-6)
    encoder.restore(moved | start, 1.0)
    encoder.merge()
    np.testing.assert_allclose(encoder.vectors(asked), whole, atol=1e-5)


@pytest.mark.parametrize(("alpha", "scale"), [(None, 1.0), (12, 3.0)])
def test_lora_adds_its_product_scaled_by_alpha_over_rank(alpha: int | None, scale: float) -> None:
    torch.manual_seed(0)
    small = XLMRobertaConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    model = AutoModel.from_config(small)
    before = model.encoder.layer[0].attention.self.query.weight.detach().clone()
    settings = AdaptSettings(method="lora", lora_rank=4, lora_alpha=alpha, target_modules=("query",))
    lora, trained = add_lora(model, settings), trainable(model, settings)
    a, b = (next(one for name, one in trained.items() if f".lora_{part}." in name) for part in "AB")
    with torch.no_grad():
        b.normal_()
    wanted = before + scale * (b @ a).detach()
    lora.merge_and_unload()
    torch.testing.assert_close(model.encoder.layer[0].attention.self.query.weight.detach(), wanted)


def test_documents_have_their_prompt_and_vectors_are_cut_with_and_without_gradients(tmp_path: Path) -> None:
    settings = model_in(tmp_path).model_copy(update={"document_prompt": "how ", "truncate_dim": 5, "batch_size": 2})
    loaded = load_model(settings, "cpu")
    texts = ["badu", "befi kuma", "kuma"]
    raw = loaded.encode(["how badu", "how befi kuma", "how kuma"], show_progress_bar=False)[:, :5]
    wanted = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    encoder = TrainableEncoder(loaded, settings, AdaptSettings(method="full"))
    np.testing.assert_allclose(encoder.document_vectors(texts), wanted, atol=1e-5)
    loaded.train()
    found = encoder.documents(texts)
    np.testing.assert_allclose(found.detach().numpy(), wanted, atol=1e-5)
    assert found.requires_grad
