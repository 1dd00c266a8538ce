"""The writer that is a sequence-to-sequence model: its weights here are random, so that only its working is shown."""

from pathlib import Path

import pyarrow as pa
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.generate.kinds.t5 import T5Kind
from darklode.pipeline.generate.port import INPUT_SCHEMA
from darklode.pipeline.generate.seq2seq import Seq2SeqWriter
from darklode.schemas.settings import Settings

WORDS = ["<pad>", "</s>", "<unk>", *(f"word{number}" for number in range(60))]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A T5 of two layers with random weights, and a tokenizer of sixty words."""
    folder = str(tmp_path_factory.mktemp("t5") / "model")
    inner = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = Whitespace()
    tokens = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    tokens.save_pretrained(folder)
    config = T5Config(
        vocab_size=len(WORDS), d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0,
        pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    torch.manual_seed(5)
    T5ForConditionalGeneration(config).save_pretrained(folder)
    return folder


def written(settings: T5Kind, first: int = 0, count: int = 5) -> list[str | None]:
    rows = [
        {
            "tenant": "t",
            "chunk_id": str(n),
            "title": None,
            "heading": None,
            "text": f"word{n} word{n + 1}",
            "draw": first + n << 40,
        }
        for n in range(count)
    ]
    writer = settings.writer(Settings())
    found: list[str | None] = writer.write(pa.Table.from_pylist(rows, schema=INPUT_SCHEMA), [], lambda _done: None)[
        "text"
    ].to_pylist()
    return found


def test_queries_are_drawn_by_their_texts_numbers(model: str) -> None:
    settings = T5Kind(model=model, device="cpu", max_new_tokens=6, batch_size=2)
    first = written(settings)
    assert len(first) == 5
    assert any(first), "with these weights at least one begins with a word"
    assert all(len((query or "").split()) <= 6 for query in first)
    assert first == written(settings) != written(settings, first=99)


def test_weights_and_settings_name_the_writer(model: str) -> None:
    ids = {Seq2SeqWriter(T5Kind(model=model, top_k=k)).generator_id for k in (5, 10)}
    assert len(ids) == 2
    assert all("files-" in one for one in ids)


def test_what_is_no_such_model_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(MissingPart, match=r"generate\.model .* is not a sequence-to-sequence model"):
        written(T5Kind(model=str(tmp_path), device="cpu"))
