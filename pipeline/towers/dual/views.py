"""A document as its tower reads it: one text, and which of its tokens are the title's and which the content's."""

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
    """Tokens of documents as the served tower reads `title`, a new line and `content`, and masks of both parts.

    Args:
        tower: of sentence-transformers, a transformer first, whose tokenizer tells where a token lies.
        titles: None where there is none.
        contents: with topic and headings; None: nothing is read.
        prompt: put before each text; no part of a view.
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
    """Which tokens end in the title and which behind it, shape (n, tokens) each; special tokens are in neither."""
    real = last > first
    return (real & (last > begins) & (last <= ends)).astype(np.int64), (real & (last > ends)).astype(np.int64)


def mean_of(tokens: Tensor, mask: Tensor) -> Tensor:
    """Mean of the tokens that a mask names, shape (n, numbers); zero where it names none."""
    weights = mask.unsqueeze(-1).to(tokens.dtype)
    return (tokens * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)
