"""Decoder-only models as towers: the prompt is part of the saved tokenizer, and views are read before its
placeholders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.towers.dual.prompt import DecoderPrompt
from darklode.pipeline.train.release.folder import modules

TITLE, CONTENT = PLACEHOLDERS = ("[TITLE_QUERY]", "[CONTENT_QUERY]")
"""Placeholders of ScalingNote. Its third, [EMB], would be the last token, which no other token attends to, so it is
omitted.
"""

# The first line is the title's block. A text that spells the placeholder out does not make one; the placeholder itself,
# which the tokenizer normalizes as a whole, is left.
FIRST_LINE, SPELLED = r"\A[^\n]*\K\n", r"(?<=[\s\S]){0}|{0}(?=[\s\S])"

AS_IT_IS = "granite"
"""Model type whose tokenizer transformers loads from tokenizer.json without changes."""


def is_causal(loaded: Any) -> bool:
    """Whether attention is causal: the first token's output does not depend on the second token.

    Args:
        loaded: a sentence-transformers model whose first module is a transformer.
    """
    ids = torch.tensor([[1, 2], [1, 3]], device=loaded.device)
    with torch.no_grad():
        first_token = loaded[0]({"input_ids": ids, "attention_mask": torch.ones_like(ids)})["token_embeddings"][:, 0]
    return bool(torch.allclose(first_token[0], first_token[1], rtol=1e-4, atol=1e-5))


def prompt_tokens(loaded: Any) -> list[Any]:
    """Transformer and pooling that read a query at its end token.

    Args:
        loaded: a causal sentence-transformers model.

    Raises:
        SettingsError: its tokenizer has no end token.
    """
    return _reading(loaded, [], _end_of(loaded.tokenizer))


@dataclass(frozen=True)
class PromptedReader:
    """How the document tower reads a document.

    Attributes:
        parts: transformer and pooling; the served vector is read where the prompt asks for one word.
        tail: number of tokens from the content's question on.
        last: number of tokens after the content's placeholder.
    """

    parts: list[Any]
    tail: int
    last: int

    @classmethod
    def from_model(cls, loaded: Any, prompt: DecoderPrompt) -> PromptedReader:
        """Configure a causal model with a prompt.

        The tokenizer's normalizer inserts the title's question after the first line; its template adds the other
        questions, so that truncation never removes them.

        Args:
            loaded: the model; placeholders are added as tokens, initialized with the mean embedding.
            prompt: the prompt.
        """
        ids = _add_placeholders(loaded)
        content, last = (_ids(loaded.tokenizer, f"\n{text}") for text in (prompt.content, prompt.all))
        tail = [*content, ids[CONTENT], *last]
        rules = [(SPELLED.format(r"\[TITLE_QUERY\]"), " "), (FIRST_LINE, f"\n{prompt.title} {TITLE}\n")]
        return cls(_reading(loaded, rules, tail), len(tail), len(last))

    def features(
        self, tower: Any, titles: Sequence[str | None], contents: Sequence[str | None], prompt: str
    ) -> dict[str, Tensor]:
        """Tokenized documents as the served tower reads them, and masks of the token before each placeholder.

        Args:
            tower: a sentence-transformers model that starts with these parts.
            titles: None if missing; the view of a truncated title counts as missing.
            contents: likewise. For a title alone, the only block is the title's.
            prompt: prefix of each text.
        """
        pairs = list(zip(titles, contents, strict=True))
        features = tower.preprocess([prompt + "\n".join(part for part in pair if part) for pair in pairs])
        ids, lengths = features["input_ids"], features["attention_mask"].sum(dim=1)
        marks = ids == tower.tokenizer.convert_tokens_to_ids(TITLE)
        mark = torch.where(marks.any(dim=1), marks.int().argmax(dim=1), -1)
        titled, filled = (torch.tensor([bool(text) for text in part], device=ids.device) for part in (titles, contents))
        end, both = lengths - self.last - 2, titled & filled
        has_content = filled & (~titled | ((mark >= 0) & (mark + 1 < lengths - self.tail)))
        masks = {
            "title_mask": _one_hot(torch.where(both, mark - 1, end), titled & (~both | (mark > 0)), ids.shape[1]),
            "content_mask": _one_hot(end, has_content, ids.shape[1]),
        }
        return {name: text for name, text in features.items() if isinstance(text, Tensor)} | masks


def _one_hot(position: Tensor, is_present: Tensor, length: int) -> Tensor:
    places = torch.arange(length, device=position.device)
    return ((places[None, :] == position[:, None]) & is_present[:, None]).long()


def _reading(loaded: Any, rules: Sequence[tuple[str, str]], tail: Sequence[int]) -> list[Any]:
    """Transformer and pooling whose tokenizer rewrites texts and appends tokens, the last of which is read."""
    from tokenizers import Regex, Tokenizer, normalizers, processors
    from transformers import PreTrainedTokenizerFast

    old, longest = loaded.tokenizer, loaded.max_seq_length
    begin = [old.bos_token_id] if old("end")["input_ids"][0] == old.bos_token_id else []
    if longest and len(begin) + len(tail) >= longest:
        raise SettingsError(f"max_tokens {longest}: the prompt alone has {len(tail)} tokens")
    tokenizer = Tokenizer.from_str(old.backend_tokenizer.to_str())
    rewriting = [normalizers.Replace(Regex(pattern), text) for pattern, text in rules]
    if rewriting:
        own_normalizers = [tokenizer.normalizer] if tokenizer.normalizer else []
        tokenizer.normalizer = normalizers.Sequence([*rewriting, *own_normalizers])
    pieces = {"<begin>": begin, "<end>": list(tail)}
    special_tokens = [
        {"id": name, "ids": ids, "tokens": old.convert_ids_to_tokens(ids)} for name, ids in pieces.items() if ids
    ]
    single = ["<begin>", "$A", "<end>"] if begin else ["$A", "<end>"]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=special_tokens)
    fast: Any = PreTrainedTokenizerFast
    loaded[0].processor = fast(
        tokenizer_object=tokenizer,
        model_max_length=longest,
        padding_side="right",
        truncation_side="right",
        bos_token=old.bos_token,
        eos_token=old.eos_token,
        pad_token=old.pad_token or old.eos_token,
    )
    # transformers would take the tokenizers of some families (Qwen2's) apart and leave the rules out; not of this type.
    loaded[0].tokenizer_args = {"tokenizer_type": AS_IT_IS}
    loaded[0].config_keys = [*loaded[0].config_keys, "tokenizer_args"]
    return [loaded[0], modules().Pooling(loaded[0].auto_model.config.hidden_size, pooling_mode="lasttoken")]


def _end_of(tokenizer: Any) -> list[int]:
    if tokenizer.eos_token_id is None:
        raise SettingsError("the tokenizer of this decoder names no end token, at which queries are read")
    return [tokenizer.eos_token_id]


def _add_placeholders(loaded: Any) -> dict[str, int]:
    from tokenizers import AddedToken

    tokenizer, model = loaded.tokenizer, loaded[0].auto_model
    _end_of(tokenizer)  # it pads, too
    # Before it a blank is inserted and swallowed: tokenizers that mark where words begin see the same token then.
    tokenizer.add_tokens(
        [AddedToken(placeholder, lstrip=True, normalized=True) for placeholder in PLACEHOLDERS], special_tokens=True
    )
    ids = {placeholder: int(tokenizer.convert_tokens_to_ids(placeholder)) for placeholder in PLACEHOLDERS}
    rows = model.get_input_embeddings().num_embeddings
    mean = model.get_input_embeddings().weight.detach().mean(dim=0)
    model.resize_token_embeddings(max(rows, *(placeholder + 1 for placeholder in ids.values())), mean_resizing=False)
    with torch.no_grad():
        model.get_input_embeddings().weight[list(ids.values())] = mean
    return ids


def _ids(tokenizer: Any, text: str) -> list[int]:
    token_ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return token_ids
