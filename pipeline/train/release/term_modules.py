"""Term vectors in a saved encoder, as modules that sentence-transformers itself has: no code of Darklode is needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.types import Floats
from darklode.pipeline.train.data.term_vectors import TermVectors
from darklode.pipeline.train.fit.term_start import TermStart
from darklode.pipeline.train.release.modules import dense_module, modules

TERMS_FILE = "term_vectors.safetensors"
"""Term vectors and the maps that mix them with query vectors, in `adapter/`."""

_MIXED = "mixed_embedding"
"""Feature that holds the query vector while the table is looked up."""


def term_modules(start: TermStart, terms: TermVectors, loaded: Any) -> list[Any]:
    """Modules that mix a query's unit vector with the vectors of its tokens, as `TermStart.apply` does.

    `WordEmbeddings` looks up the token ids that the encoder itself has read, so its own tokenizer is never used; it
    overwrites `cls_token_embeddings`, which therefore receives the query vector afterwards, and `Pooling` puts both side
    by side.

    Args:
        start: how they are mixed.
        terms: the term vectors.
        loaded: the base, whose tokenizer gives the token ids.

    Raises:
        DarklodeError: a token has no place in the tokenizer's vocabulary.
    """
    import torch

    dimensions = len(start.bias)
    vocabulary = max(loaded.tokenizer.get_vocab().values()) + 1
    if len(terms.tokens) and terms.tokens[-1] >= vocabulary:
        raise DarklodeError(f"token {terms.tokens[-1]} of the term vectors is not in the model's vocabulary")
    table = np.zeros((vocabulary, dimensions), np.float32)
    table[terms.tokens] = mapped_vectors(start, terms)
    eye = np.eye(dimensions, dtype=np.float32)
    parts = modules()
    tokenizers: Any = import_module(f"{parts.__name__}.tokenizer")
    unused_tokenizer = tokenizers.WhitespaceTokenizer(vocab=[], stop_words=[])
    return [
        dense_module(start.weight, start.bias),
        parts.Normalize(),
        dense_module(eye, None, target=_MIXED),
        parts.WordEmbeddings(unused_tokenizer, torch.from_numpy(table)),
        dense_module(eye, None, source=_MIXED, target="cls_token_embeddings"),
        parts.Pooling(dimensions, ("cls", "mean_sqrt_len_tokens")),
        dense_module(np.concatenate([eye, eye], axis=1), None),
        parts.Normalize(),
    ]


def mapped_vectors(start: TermStart, terms: TermVectors) -> Floats:
    """Term vectors as they are added to a query's whitened unit vector, shape (n_tokens, dimensions)."""
    return np.asarray(terms.vectors @ start.terms.T, np.float32)


def term_bytes(start: TermStart, terms: TermVectors) -> bytes:
    """The file `TERMS_FILE`: token ids, their mapped vectors, and the whitening of the query's vector."""
    from safetensors.numpy import save

    tensors = {"tokens": terms.tokens.astype(np.int32), "vectors": mapped_vectors(start, terms)}
    return save(tensors | {"start.weight": np.ascontiguousarray(start.weight), "start.bias": start.bias})
