"""Decoder-only models as towers.

The prompt is part of the saved tokenizer, so that the released model needs no code of Darklode. Because attention is
causal, a view's vector is the output at the token before its placeholder, which has read everything up to there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.towers.dual.prompt import DecoderPrompt
from darklode.pipeline.train.release.modules import modules

TITLE, CONTENT = PLACEHOLDERS = ("[TITLE_QUERY]", "[CONTENT_QUERY]")
"""Placeholder tokens of ScalingNote that end the title's and the content's question. The paper's third, [EMB], would be
the last token, which no other token attends to, so it is omitted.
"""

# The line break after the first line: the first line is the title, and its question is inserted here.
FIRST_LINE_BREAK = r"\A[^\n]*\K\n"
# A placeholder spelled out in a document, which must not become the token. The real placeholder is normalized as a text
# of its own, with no character before or after it, so it does not match.
SPELLED_PLACEHOLDER = r"(?<=[\s\S]){0}|{0}(?=[\s\S])"

UNCHANGED_TOKENIZER_TYPE = "granite"
"""A model type whose tokenizer transformers loads from tokenizer.json without changes; see `_reading`."""


def is_causal(loaded: Any) -> bool:
    """Test whether attention is causal: whether the first token's output does not depend on the second token.

    Args:
        loaded: a sentence-transformers model whose first module is a transformer.
    """
    ids = torch.tensor([[1, 2], [1, 3]], device=loaded.device)
    with torch.no_grad():
        first_token = loaded[0]({"input_ids": ids, "attention_mask": torch.ones_like(ids)})["token_embeddings"][:, 0]
    return bool(torch.allclose(first_token[0], first_token[1], rtol=1e-4, atol=1e-5))


def prompt_tokens(loaded: Any) -> list[Any]:
    """Build the transformer and pooling modules that read a query's vector at its end token.

    Args:
        loaded: a causal sentence-transformers model.

    Raises:
        SettingsError: its tokenizer has no end token.
    """
    return _reading(loaded, [], _end_of(loaded.tokenizer))


@dataclass(frozen=True)
class PromptedReader:
    """Tokenizes documents with the prompt for the document tower.

    Attributes:
        parts: transformer and pooling modules; the served vector is the output at the prompt's last token.
        tail: number of tokens from the content's question to the end of the prompt.
        last: number of tokens after the content's placeholder.
    """

    parts: list[Any]
    tail: int
    last: int

    @classmethod
    def from_model(cls, loaded: Any, prompt: DecoderPrompt) -> PromptedReader:
        """Add a prompt to the tokenizer of a causal model.

        The tokenizer's normalizer inserts the title's question after the first line; its template appends the other
        questions after truncation, so that they are never cut off.

        Args:
            loaded: the model; the placeholders are added to its tokens and start with the mean embedding.
            prompt: the prompt.

        Raises:
            SettingsError: the tokenizer has no end token, or the prompt alone exceeds the maximum length.
        """
        placeholder_ids = _add_placeholders(loaded)
        content_question = _ids(loaded.tokenizer, f"\n{prompt.content}")
        last_question = _ids(loaded.tokenizer, f"\n{prompt.all}")
        tail = [*content_question, placeholder_ids[CONTENT], *last_question]
        rules = [
            (SPELLED_PLACEHOLDER.format(r"\[TITLE_QUERY\]"), " "),
            (FIRST_LINE_BREAK, f"\n{prompt.title} {TITLE}\n"),
        ]
        return cls(_reading(loaded, rules, tail), len(tail), len(last_question))

    def features(
        self, tower: Any, titles: Sequence[str | None], contents: Sequence[str | None], prompt: str
    ) -> dict[str, Tensor]:
        """Tokenize documents as the served tower does, and mark the token at which each view is read.

        That is the token before the view's placeholder. A document with a title or a content only has one block, which
        is read before the content's placeholder.

        Args:
            tower: a sentence-transformers model that starts with `parts`.
            titles: title of each document; None: it has none. A view that truncation cut off counts as missing.
            contents: content of each document; None: it has none.
            prompt: prefix of each text.

        Returns:
            The tokens, and `title_mask` and `content_mask`, shape (n, tokens), with at most one 1 per row.
        """
        documents = list(zip(titles, contents, strict=True))
        features = tower.preprocess([prompt + "\n".join(text for text in document if text) for document in documents])
        ids = features["input_ids"]
        lengths = features["attention_mask"].sum(dim=1)
        is_title_placeholder = ids == tower.tokenizer.convert_tokens_to_ids(TITLE)
        title_placeholder = torch.where(is_title_placeholder.any(dim=1), is_title_placeholder.int().argmax(dim=1), -1)
        has_title = torch.tensor([bool(title) for title in titles], device=ids.device)
        has_content = torch.tensor([bool(content) for content in contents], device=ids.device)
        has_both = has_title & has_content
        before_content_placeholder = lengths - self.last - 2
        # With a title, the content counts only if a token of it is left between the two questions.
        content_fits = (title_placeholder >= 0) & (title_placeholder + 1 < lengths - self.tail)
        title_position = torch.where(has_both, title_placeholder - 1, before_content_placeholder)
        title_is_read = has_title & (~has_both | (title_placeholder > 0))
        content_is_read = has_content & (~has_title | content_fits)
        masks = {
            "title_mask": _one_hot(title_position, title_is_read, ids.shape[1]),
            "content_mask": _one_hot(before_content_placeholder, content_is_read, ids.shape[1]),
        }
        return {name: value for name, value in features.items() if isinstance(value, Tensor)} | masks


def _one_hot(position: Tensor, is_present: Tensor, length: int) -> Tensor:
    """Build rows of `length` zeros with a 1 at each row's position; rows that are not present stay zero."""
    token_positions = torch.arange(length, device=position.device)
    return ((token_positions[None, :] == position[:, None]) & is_present[:, None]).long()


def _reading(loaded: Any, rules: Sequence[tuple[str, str]], tail: Sequence[int]) -> list[Any]:
    """Build transformer and pooling modules whose tokenizer rewrites texts and appends tokens.

    Args:
        loaded: a causal sentence-transformers model; its tokenizer is replaced.
        rules: pairs of a regular expression and its replacement, applied in order before the tokenizer's own rules.
        tail: ids of the appended tokens; the vector is the output at the last one.

    Raises:
        SettingsError: the appended tokens alone exceed the maximum length.
    """
    from tokenizers import Regex, Tokenizer, normalizers, processors
    from transformers import PreTrainedTokenizerFast

    original = loaded.tokenizer
    max_length = loaded.max_seq_length
    # Tokenizing any text shows whether the tokenizer puts a token at the beginning.
    begin = [original.bos_token_id] if original("end")["input_ids"][0] == original.bos_token_id else []
    if max_length and len(begin) + len(tail) >= max_length:
        raise SettingsError(f"max_tokens {max_length}: the prompt alone has {len(tail)} tokens")
    tokenizer = Tokenizer.from_str(original.backend_tokenizer.to_str())
    replacements = [normalizers.Replace(Regex(pattern), text) for pattern, text in rules]
    if replacements:
        own_normalizers = [tokenizer.normalizer] if tokenizer.normalizer else []
        tokenizer.normalizer = normalizers.Sequence([*replacements, *own_normalizers])
    added_ids = {"<begin>": begin, "<end>": list(tail)}
    special_tokens = [
        {"id": name, "ids": ids, "tokens": original.convert_ids_to_tokens(ids)}
        for name, ids in added_ids.items()
        if ids
    ]
    template = ["<begin>", "$A", "<end>"] if begin else ["$A", "<end>"]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=special_tokens)
    tokenizer_class: Any = PreTrainedTokenizerFast
    loaded[0].processor = tokenizer_class(
        tokenizer_object=tokenizer,
        model_max_length=max_length,
        padding_side="right",
        truncation_side="right",
        bos_token=original.bos_token,
        eos_token=original.eos_token,
        pad_token=original.pad_token or original.eos_token,
    )
    # For some model types (Qwen2), transformers rebuilds the tokenizer when it is loaded and drops the rules. The type
    # below keeps it as saved.
    loaded[0].tokenizer_args = {"tokenizer_type": UNCHANGED_TOKENIZER_TYPE}
    loaded[0].config_keys = [*loaded[0].config_keys, "tokenizer_args"]
    return [loaded[0], modules().Pooling(loaded[0].auto_model.config.hidden_size, pooling_mode="lasttoken")]


def _end_of(tokenizer: Any) -> list[int]:
    """Return the id of the end token as a list, or raise `SettingsError` if there is none."""
    if tokenizer.eos_token_id is None:
        raise SettingsError("the tokenizer of this decoder names no end token, at which queries are read")
    return [tokenizer.eos_token_id]


def _add_placeholders(loaded: Any) -> dict[str, int]:
    """Add the placeholders to the model's tokens, embedded as the mean of all tokens; returns their ids."""
    from tokenizers import AddedToken

    tokenizer, model = loaded.tokenizer, loaded[0].auto_model
    _end_of(tokenizer)  # raises without an end token, which is also the padding token if there is no other
    # The prompt has a blank before the placeholder, and `lstrip` makes the token absorb it: tokenizers that mark the
    # beginning of words give the same token then.
    tokenizer.add_tokens(
        [AddedToken(placeholder, lstrip=True, normalized=True) for placeholder in PLACEHOLDERS], special_tokens=True
    )
    ids = {placeholder: int(tokenizer.convert_tokens_to_ids(placeholder)) for placeholder in PLACEHOLDERS}
    n_embeddings = model.get_input_embeddings().num_embeddings
    mean_embedding = model.get_input_embeddings().weight.detach().mean(dim=0)
    n_needed = max(n_embeddings, *(token_id + 1 for token_id in ids.values()))  # some models have spare rows
    model.resize_token_embeddings(n_needed, mean_resizing=False)
    with torch.no_grad():
        model.get_input_embeddings().weight[list(ids.values())] = mean_embedding
    return ids


def _ids(tokenizer: Any, text: str) -> list[int]:
    """Tokenize a text without special tokens."""
    token_ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return token_ids
