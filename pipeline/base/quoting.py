"""Escape foreign text in a prompt, so that a model cannot read it as markup; all other text stays unchanged.

A *mark* is a tag that the prompt sets around foreign text, such as </chunk>, or a control token of a model, such as
<|im_end|>, which a tokenizer interprets wherever it occurs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

REVISION = 2
"""Revision of this module. It decides what a model reads, so it is part of the ids of judge and term weighter."""

_INVISIBLE_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffc\U000e0000-\U000e007f]"
)
"""Control characters except tab and line break, and characters that hide or reverse neighboring text."""

_REVISION_1 = re.compile(r"<(?=[^\s<=\d])|\[(?=\||/?[A-Z_]{2,}\])")
"""Marks that revision 1 broke by inserting a blank."""

_BLANK_CLASS = (
    r"[\s\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200c\u200d\u206a-\u206f\u2800\u3164\ufe00-\ufe0f\uffa0"
    r"\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0080-\U000e0fff]"
)
"""White space, and characters that Unicode renders as nothing."""

_ANGLE_TOKENS = r"""
    [|｜][^\s<>\[\]]{1,64}> | [^\s<>\[\]|｜]{1,64}[|｜]>    # <|im_start|>, <｜end▁of▁sentence｜>, <|turn>, <turn|>
    | /?(?:
        s | bos | eos | pad | unk | mask | cls | sep        # sentencepiece, T5, RoBERTa
        | SYS | sop | eo[dmpt] | [A-Z]{3}_TOKEN             # Llama 2, GLM, Command R
        | (?:start|end)_of_\w+ | image_soft_token           # Gemma
        | think | tool_(?:calls?|responses?|results?|sep) | arg_key | arg_value   # Qwen, GLM, Hunyuan
        | (?:unused|extra_|extra_id_|reserved_|SPECIAL_|special_)\d+              # T5, Gemma, Baichuan, Nemotron
        | fim[_-]\w+ | file_sep                             # models of code
        | (?:seed|minimax):\w+ | longcat_\w+
    )>
"""
_SQUARE_TOKENS = r"""
    \|[^\s<>\[\]]{1,64}\|\]                               # [|assistant|]
    | /?(?:
        INST | SYSTEM_PROMPT | MODEL_SETTINGS | AVAILABLE_TOOLS | TOOL_\w+ | ARGS | CALL_ID | THINK   # Mistral
        | PREFIX | SUFFIX | MIDDLE | IMG | IMG_\w+ | AUDIO | BEGIN_AUDIO | TRANSCRIBE | REF
        | CLS | SEP | PAD | UNK | BOS | EOS | [gs]?MASK     # BERT, GLM
        | (?:UNUSED_TOKEN_|unused|control_)\d+              # InternLM, BERT, Mistral
    )\]
    | e~\[                                                  # MiniMax
"""
_CONTROL_TOKENS = {"<": _ANGLE_TOKENS, "[": _SQUARE_TOKENS, "]": r"~!?b[\[\]]"}
"""Control tokens by their first character, without it; none holds another first character but as its last."""


class Quoting:
    r"""Breaks marks by a backslash behind their first character: <\/chunk>, <\|im_end|>, [\INST].

    What is no mark, such as `a<b`, `List<String>` or `x[INDEX]`, is not touched.

    Args:
        template: of the prompt; its marks are the names in <> or [] that stand in it.
    """

    def __init__(self, template: str) -> None:
        marks = {first: "|".join([tokens, *_own_marks(template, first)]) for first, tokens in _CONTROL_TOKENS.items()}
        self._complete_pattern, self._broken = _pattern(marks, ""), _pattern(marks, r"\\")

    def quote(self, text: str) -> str:
        """Foreign text as it may stand in the prompt."""
        visible_text = visible(text)
        return (
            self._complete_pattern.sub(r"\g<0>\\", visible_text)
            if "<" in visible_text or "[" in visible_text or "]" in visible_text
            else visible_text
        )

    def as_before(self, texts: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
        """Whether a text is shown as by revision 1, which broke every tag, too; shape (n_texts,), true where null."""
        same = pc.invert(pc.fill_null(pc.match_substring_regex(texts, r"[<\[\]]"), False))
        same = np.array(same, np.bool_)
        rows = np.flatnonzero(~same)
        same[rows] = [self._is_as_before(visible(text)) for text in texts.take(pa.array(rows)).to_pylist()]
        return same

    def _is_as_before(self, visible_text: str) -> bool:
        return not _REVISION_1.search(visible_text) and not self._complete_pattern.search(visible_text)

    def unquote(self, text: str) -> str:
        """The text that `quote` was given, as far as it is visible."""
        return self._broken.sub(lambda mark: mark[0][0], text)


def _pattern(marks: Mapping[str, str], behind: str) -> re.Pattern[str]:
    """Finds the first characters of marks, and what stands behind them, backslashes before the rest left aside."""
    each = (rf"{re.escape(first)}{behind}(?=\\*+(?:{suffix}))" for first, suffix in marks.items())
    return re.compile("|".join(each), re.VERBOSE)


def visible(text: str) -> str:
    """A text with line feeds as its only line ends, without characters that hide or turn others."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _INVISIBLE_CHARACTERS.sub("", text)


def _own_marks(template: str, first: str) -> Iterator[str]:
    """The template's own marks that begin with a bracket, without it: blanks, case and attributes are no way around."""
    last = {"<": ">", "[": r"\]"}.get(first)
    names = sorted({*re.findall(rf"{re.escape(first)}/?([\w-]+){last}", template)}) if last else []
    if names:
        name = f"(?i:{'|'.join(map(re.escape, names))})"
        yield rf"{_BLANK_CLASS}*+/{_BLANK_CLASS}*+{name}(?!\w)"
        yield rf"{name}(?:{_BLANK_CLASS}|[/{last}]|\Z)"
        yield rf"{_BLANK_CLASS}++{name}{_BLANK_CLASS}*+(?:/?{_BLANK_CLASS}*+{last}|\Z)"
        yield rf"{_BLANK_CLASS}*+/?{_BLANK_CLASS}*+\Z"  # the text that follows could go on with it
