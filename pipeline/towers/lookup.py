"""A student of one layer: a table of hidden states replaces the layers below it.

A token's row is its hidden state below the last layer when the teacher reads the token alone, so that a query of one
token gets nearly the teacher's vector, and the remaining layer adds what the tokens say together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from darklode.pipeline.base.types import Floats
from darklode.pipeline.train.fit.trainable_encoder import layers_of

TOKENS_PER_PASS = 512
"""Tokens that the teacher encodes at once."""


def can_look_up(model: nn.Module) -> bool:
    """Whether a transformer's embeddings can be replaced: BERT and models built like it.

    Args:
        model: a transformers model.
    """
    embeddings, layers = getattr(model, "embeddings", None), model.get_submodule(layers_of(model))
    has_embeddings = all(hasattr(embeddings, name) for name in ("word_embeddings", "position_embeddings", "LayerNorm"))
    return has_embeddings and all(hasattr(getattr(layer, "output", None), "LayerNorm") for layer in layers.children())


def replace_lower_layers(loaded: Any) -> None:
    """Replace all layers but the last by a table of hidden states; positions start at zero.

    The embeddings end in a layer norm, as each layer does. With the norm of the last replaced layer, and rows that
    are normalized already, they return the hidden states unchanged.

    Args:
        loaded: a sentence-transformers model; changed in place.
    """
    model = loaded[0].auto_model
    layers_path = layers_of(model)
    layers = model.get_submodule(layers_path)
    assert isinstance(layers, nn.ModuleList)
    if len(layers) < 2:
        return
    states = torch.from_numpy(hidden_states(model, loaded.tokenizer, layer=-2))
    replaced: Any = layers[-2]
    norm, embeddings = replaced.output.LayerNorm, model.embeddings
    table = embeddings.word_embeddings.weight
    with torch.no_grad():
        scale = torch.where(norm.weight.abs() < 1e-6, torch.ones_like(norm.weight), norm.weight)
        table[: len(states)] = ((states - norm.bias.cpu()) / scale.cpu()).to(table.device)
        embeddings.LayerNorm.weight.copy_(norm.weight)
        embeddings.LayerNorm.bias.copy_(norm.bias)
        embeddings.position_embeddings.weight.zero_()
        if hasattr(embeddings, "token_type_embeddings"):
            embeddings.token_type_embeddings.weight.zero_()


def hidden_states(model: Any, tokenizer: Any, layer: int) -> Floats:
    """Hidden states of all tokens, each alone between the special tokens, shape (n_tokens, hidden size).

    A special token that surrounds a text gets the mean of its own states.

    Args:
        model: a transformers model.
        tokenizer: its tokenizer.
        layer: index into the hidden states: −1 is the last layer, 0 the embeddings.
    """
    before, after = special_tokens(tokenizer)
    n_tokens = min(len(tokenizer), model.get_input_embeddings().weight.shape[0])
    blocks, surrounding = [], np.zeros((len(before) + len(after), model.config.hidden_size))
    was_training = model.training
    model.eval()
    with torch.no_grad():
        for start in range(0, n_tokens, TOKENS_PER_PASS):
            tokens = range(start, min(start + TOKENS_PER_PASS, n_tokens))
            ids = torch.tensor([[*before, token, *after] for token in tokens], device=model.device)
            output = model(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
            states = output.hidden_states[layer].float().cpu().numpy()
            blocks.append(states[:, len(before)])
            surrounding += np.delete(states, len(before), axis=1).sum(axis=0)
    model.train(was_training)
    vectors = np.concatenate(blocks)
    for token, state in zip([*before, *after], surrounding / n_tokens, strict=True):
        vectors[token] = state
    return vectors


def special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Ids of the special tokens before and after a text.

    Args:
        tokenizer: a transformers tokenizer.
    """
    surrounded, word = tokenizer("a")["input_ids"], tokenizer("a", add_special_tokens=False)["input_ids"]
    start = next(index for index in range(len(surrounded)) if surrounded[index : index + len(word)] == word)
    return surrounded[:start], surrounded[start + len(word) :]
