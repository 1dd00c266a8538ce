"""A document as its tower reads it: one text, and which tokens belong to title and content."""

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
    """Tokenized `title`, newline, `content`, and the masks of both parts.

    Args:
        tower: a sentence-transformers model whose tokenizer returns offsets.
        titles: None if missing.
        contents: with topic and headings; None: empty.
        prompt: prefix of each text, part of no view.
    """
    begins, texts, ends = len(prompt.lstrip()), [], []
    for title, content in zip(titles, contents, strict=True):
        head = f"{prompt.lstrip()}{title or ''}"
        texts.append("\n".join([head, content]) if title and content else head + (content or ""))
        ends.append(len(head))
    tokens = tower.tokenizer(
        texts,
        padding=True,
        truncation="longest_first",
        max_length=tower.max_seq_length,
        return_offsets_mapping=True,
        return_tensors="pt",
    )
    offsets = tokens.pop("offset_mapping").numpy()
    title, content = _masks(offsets[:, :, 0], offsets[:, :, 1], begins, np.array(ends)[:, None])
    return {**tokens, "title_mask": torch.from_numpy(title), "content_mask": torch.from_numpy(content)}


def _masks(first: Any, last: Any, begins: int, ends: Any) -> tuple[Any, Any]:
    """Masks of title and content tokens by their end offsets, shape (n, tokens); special tokens are in neither."""
    real = last > first
    return (real & (last > begins) & (last <= ends)).astype(np.int64), (real & (last > ends)).astype(np.int64)


def mean_of(tokens: Tensor, mask: Tensor) -> Tensor:
    """Mean of the masked tokens, shape (n, dimensions); zero for an empty mask."""
    weights = mask.unsqueeze(-1).to(tokens.dtype)
    return (tokens * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)
