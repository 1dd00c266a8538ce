"""ONNX models of a few kilobytes that read letters, with random weights: they show the protocol, not quality."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

N_TOKENS = 24
"""Maximum tokens of a text or pair."""

DIMENSIONS = 8
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *_LETTERS]


def tiny_encoder(
    folder: Path, graph: str = "onnx/model.onnx", seed: int = 7, pooling: str | None = "mean_tokens"
) -> Path:
    """An encoder whose output is a vector per token, shape (texts, tokens, 8).

    Args:
        folder: does not exist yet.
        graph: name of the ONNX file in it.
        seed: of the weights.
        pooling: for `1_Pooling/config.json`, as sentence-transformers writes it; None: no such file.
    """
    helper = onnx.helper
    nodes = [helper.make_node("Gather", ["embeddings", "input_ids"], ["last_hidden_state"])]
    _save(folder, graph, nodes, {}, seed, ("last_hidden_state", ["n", "t", DIMENSIONS]), ["input_ids"])
    if pooling:
        modes = {f"pooling_mode_{name}": name == pooling for name in ("cls_token", "mean_tokens", "lasttoken")}
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"include_prompt": True, **modes}))
    return folder


def tiny_cross_encoder(folder: Path, graph: str = "onnx/model.onnx", seed: int = 7, labels: int = 1) -> Path:
    """A cross-encoder: the inner product of the mean token vectors of both texts, as `logits` of shape (pairs, labels).

    Args:
        folder: does not exist yet.
        graph: name of the ONNX file in it.
        seed: of the weights.
        labels: number of outputs per pair, which differ by a factor.
    """
    node = onnx.helper.make_node
    nodes = [
        node("Gather", ["embeddings", "input_ids"], ["vectors"]),
        node("Mul", ["attention_mask", "token_type_ids"], ["chunk_mask"]),
        node("Sub", ["attention_mask", "chunk_mask"], ["query_mask"]),
    ]
    for side in ("query", "chunk"):
        nodes += [
            node("Cast", [f"{side}_mask"], [f"{side}_weight"], to=onnx.TensorProto.FLOAT),
            node("Unsqueeze", [f"{side}_weight", "last_axis"], [f"{side}_column"]),
            node("Mul", ["vectors", f"{side}_column"], [f"{side}_vectors"]),
            node("ReduceSum", [f"{side}_vectors", "token_axis"], [f"{side}_sum"], keepdims=0),
            node("ReduceSum", [f"{side}_column", "token_axis"], [f"{side}_count"], keepdims=0),
            node("Div", [f"{side}_sum", f"{side}_count"], [f"{side}_mean"]),
        ]
    nodes += [
        node("Mul", ["query_mean", "chunk_mean"], ["products"]),
        node("ReduceSum", ["products", "token_axis"], ["score"], keepdims=1),
        node("MatMul", ["score", "labels"], ["logits"]),
    ]
    constants = {
        "last_axis": np.array([-1], np.int64),
        "token_axis": np.array([1], np.int64),
        "labels": np.arange(1, labels + 1, dtype=np.float32)[None],
    }
    inputs = ["input_ids", "attention_mask", "token_type_ids"]
    return _save(folder, graph, nodes, constants, seed, ("logits", ["n", "labels"]), inputs)


def _save(
    folder: Path,
    graph: str,
    nodes: list[Any],
    constants: dict[str, Any],
    seed: int,
    output: tuple[str, list[Any]],
    inputs: list[str],
) -> Path:
    helper, types = onnx.helper, onnx.TensorProto
    weights = np.random.default_rng(seed).normal(size=(len(_VOCABULARY), DIMENSIONS)).astype(np.float32)
    arrays = {"embeddings": weights, **constants}
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    signature = [helper.make_tensor_value_info(name, types.INT64, ["n", "t"]) for name in inputs]
    result = helper.make_tensor_value_info(output[0], types.FLOAT, output[1])
    body = helper.make_graph(nodes, "tiny", signature, [result], tensors)
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    (folder / graph).parent.mkdir(parents=True)
    onnx.save(model, folder / graph)
    _save_tokenizer(folder)
    return folder


def _save_tokenizer(folder: Path) -> None:
    ids = {token: number for number, token in enumerate(_VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": N_TOKENS, "pad_token": "[PAD]"}))
    (folder / "special_tokens_map.json").write_text(json.dumps({"pad_token": "[PAD]", "cls_token": "[CLS]"}))
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0}))


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def into_hub_cache(model: Path, hub: Path, repository: str) -> Path:
    """Move a model into a hub cache, as a download of `repository` would leave it.

    Returns:
        The snapshot's folder.
    """
    entry = hub / f"models--{repository.replace('/', '--')}"
    (entry / "refs").mkdir(parents=True)
    (entry / "refs" / "main").write_text(COMMIT)
    (entry / "snapshots").mkdir()
    return model.rename(entry / "snapshots" / COMMIT)
