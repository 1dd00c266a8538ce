"""Term vectors in a saved encoder, as modules that sentence-transformers itself has: no code of Darklode is needed."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Store
from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.types import Floats
from darklode.pipeline.train.data.term_vectors import TermTable
from darklode.pipeline.train.fit.term_start import TermStart
from darklode.pipeline.train.release.adapter import ADAPTER_FOLDER
from darklode.pipeline.train.release.modules import dense_module, modules

TERMS_FILE = "term_vectors.safetensors"
"""Term vectors and the maps that mix them with query vectors, in `adapter/`."""

TERMS_PATH = f"{ADAPTER_FOLDER}/{TERMS_FILE}"
"""Its path in an adapter's folder; the head beside it takes mixed vectors, so no training starts from that alone."""

_MIXED = "mixed_embedding"
"""Feature that holds the query vector while the table is looked up."""


def term_modules(start: TermStart, terms: TermTable, loaded: Any) -> list[Any]:
    """Modules that mix a query's unit vector with the vectors of its tokens, as `TermStart.apply` does.

    `WordEmbeddings` looks up the token ids that the encoder itself has read, so its own tokenizer is never used. It
    overwrites `cls_token_embeddings`, which therefore receives the query vector afterwards. `Pooling` puts both side by
    side.

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


def mapped_vectors(start: TermStart, terms: TermTable) -> Floats:
    """Term vectors as they are added to a query's whitened unit vector, shape (n_tokens, dimensions)."""
    return np.asarray(terms.vectors @ start.terms.T, np.float32)


def term_bytes(start: TermStart, terms: TermTable) -> bytes:
    """The file `TERMS_FILE`: token ids, their mapped vectors, and the tensors of a `TermStart` for these."""
    from safetensors.numpy import save

    own = replace(start, terms=np.eye(len(start.bias), dtype=np.float32))  # the vectors are mapped already
    return save(own.tensors() | {"tokens": terms.tokens.astype(np.int32), "vectors": mapped_vectors(start, terms)})


def read_terms(store: Store) -> dict[str, NDArray[Any]] | None:
    """The tensors of `TERMS_FILE` in an adapter's folder; None: it has no term vectors."""
    from safetensors.numpy import load

    data = store.read(TERMS_PATH)
    return None if data is None else load(data)
