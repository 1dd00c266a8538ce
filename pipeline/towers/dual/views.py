"""Tokenizes documents for an encoder as the document tower, and marks which tokens belong to title and content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

Features = dict[str, Tensor]


def document_features(
    tower: Any, titles: Sequence[str | None], contents: Sequence[str | None], prompt: str
) -> Features:
    """Tokenize `title`, newline, `content`, and compute the masks `title_mask` and `content_mask`.

    Args:
        tower: a sentence-transformers model whose tokenizer returns offsets (a "fast" tokenizer).
        titles: title of each document; None: it has none.
        contents: content of each document, with topic and headings; None: it has none.
        prompt: prefix of each text; its tokens belong to no view.
    """
    prompt = prompt.lstrip()  # leading blanks are dropped before offsets are counted
    texts: list[str] = []
    title_ends: list[int] = []
    for title, content in zip(titles, contents, strict=True):
        prompted_title = f"{prompt}{title or ''}"
        texts.append("\n".join([prompted_title, content]) if title and content else prompted_title + (content or ""))
        title_ends.append(len(prompted_title))
    tokens = tower.tokenizer(
        texts,
        padding=True,
        truncation="longest_first",
        max_length=tower.max_seq_length,
        return_offsets_mapping=True,
        return_tensors="pt",
    )
    offsets = tokens.pop("offset_mapping").numpy()
    starts, ends = offsets[:, :, 0], offsets[:, :, 1]
    title_mask, content_mask = _masks(starts, ends, len(prompt), np.array(title_ends)[:, None])
    return {**tokens, "title_mask": torch.from_numpy(title_mask), "content_mask": torch.from_numpy(content_mask)}


def _masks(starts: Any, ends: Any, prompt_end: int, title_ends: Any) -> tuple[Any, Any]:
    """Compute the 0/1 masks of title and content tokens, each of shape (n, tokens).

    Args:
        starts, ends: character offsets of each token, shape (n, tokens).
        prompt_end: offset of the first character after the prompt.
        title_ends: offset of the first character after each title, shape (n, 1).
    """
    has_text = ends > starts  # special tokens and padding have an empty range and belong to no view
    title_mask = has_text & (ends > prompt_end) & (ends <= title_ends)
    content_mask = has_text & (ends > title_ends)
    return title_mask.astype(np.int64), content_mask.astype(np.int64)


def mean_of(tokens: Tensor, mask: Tensor) -> Tensor:
    """Average the token vectors whose mask is 1; zero for an empty mask.

    Args:
        tokens: shape (n, tokens, dimensions).
        mask: shape (n, tokens).

    Returns:
        Shape (n, dimensions).
    """
    weights = mask.unsqueeze(-1).to(tokens.dtype)
    return (tokens * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)
