"""Foreign text inside a prompt: it stays data, whatever it holds."""

from __future__ import annotations

import re

REVISION = 1
"""It decides what a judge reads, so it is part of the judge's id."""

_OPENING = re.compile(r"<(?=[^\s<=\d])|\[(?=\||/?[A-Z_]{2,}\])")
"""What may begin a mark of ours (</chunk>) or a chat template's control token: <|im_start|>, </s>, [INST], <<SYS>>."""

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffc\U000e0000-\U000e007f]"
)
"""Control characters but tab and line break, and characters that hide or turn what stands around them."""


def quoted(text: str) -> str:
    """The text with every mark broken by a blank, so that no tokenizer and no template takes it for one.

    A blank is the smallest change after which `< |im_end|>` is eight plain tokens; a reader of code or HTML is not
    misled by it.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    seen = _UNSEEN.sub("", text)
    return _OPENING.sub(r"\g<0> ", seen) if "<" in seen or "[" in seen else seen
