"""A BERT of one layer and 8 numbers that reads letters: its weights are drawn at random, it speaks of no quality."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

transformers = pytest.importorskip("transformers", reason="transformers is not installed")


def tiny_bert(folder: Path, kind: str = "BertModel", whole: Sequence[str] = (), **config: object) -> Path:
    """Save it to a new folder.

    Args:
        folder: does not exist yet.
        kind: its class in transformers.
        whole: words that are one token each.
        config: what differs in its configuration.
    """
    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789"]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters), *whole]
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.set_seed(7)
    chosen = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=64, **(sizes | config))
    getattr(transformers, kind)(chosen).save_pretrained(folder)
    transformers.BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
    return folder
