"""Decoders of two layers and 8 numbers, weights at random: they speak of no quality."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

Family = Literal["Qwen2", "Llama"]
LETTERS = [
    "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789 :.,[]_\n",
    "the title of a text and what it says",
]


def tiny_decoder(folder: Path, family: Family = "Qwen2") -> Path:
    """Save one to a new folder, as transformers saves it.

    Args:
        folder: does not exist yet.
        family: Qwen2 reads bytes and begins with no token; Llama marks where words begin, and begins with <s>.
    """
    folder.mkdir()
    tokenizer = _of_bytes() if family == "Qwen2" else _of_words()
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    transformers.set_seed(7)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=len(tokenizer), intermediate_size=16, max_position_embeddings=256, initializer_range=0.3, **sizes
    )
    getattr(transformers, f"{family}ForCausalLM")(config).save_pretrained(folder)
    return folder


def _of_bytes():  # type: ignore[no-untyped-def]
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.normalizer, made.decoder = normalizers.NFC(), decoders.ByteLevel()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(LETTERS, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=256
    )


def _of_words():  # type: ignore[no-untyped-def]
    from tokenizers import Tokenizer, models, normalizers, processors, trainers

    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.train_from_iterator(LETTERS, trainers.BpeTrainer(vocab_size=200, special_tokens=["<unk>", "<s>", "</s>"]))
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", unk_token="<unk>", model_max_length=256
    )
