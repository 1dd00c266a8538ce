"""Queries from a local sequence-to-sequence model (Nogueira and Lin 2019, docT5query)."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import Any

import pyarrow as pa

from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.base.models.devices import devices
from darklode.pipeline.base.models.local import locate, versioned_name
from darklode.pipeline.generate.port import QueryWriter, query_table
from darklode.pipeline.generate.seq2seq_settings import Seq2SeqSettings


class Seq2SeqWriter(QueryWriter):
    """Samples queries, seeded by their texts' random numbers; reproducible for the same texts on one machine.

    Args:
        settings: of the kind t5.

    Raises:
        MissingPart: transformers or the model is missing.
    """

    def __init__(self, settings: Seq2SeqSettings) -> None:
        self._settings = settings
        identity_fields = settings.model_dump(
            mode="json", include={"max_seq_length", "max_new_tokens", "top_k", "dtype", "batch_size"}
        )
        self.generator_id = f"t5 1 {versioned_name(settings)} {json.dumps(identity_fields)}"

    @cached_property
    def _tokenizer_and_model(self) -> tuple[Any, Any]:
        import torch
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        from darklode.pipeline.base.models.loading import fetch_model

        fetch_model(self._settings)  # in a shard this is another machine than the flow's
        logging: Any = import_module("transformers.utils").logging
        logging.disable_progress_bar()  # progress bars would garble Darklode's output
        location = locate(self._settings)
        assert location is not None
        try:
            tokenizer = AutoTokenizer.from_pretrained(location.folder)
            model = AutoModelForSeq2SeqLM.from_pretrained(location.folder, dtype=getattr(torch, self._settings.dtype))
        except (OSError, ValueError) as error:
            raise MissingPart(
                f"generate.model {location.name} is not a sequence-to-sequence model: {str(error).splitlines()[0]}"
            ) from error
        return tokenizer, model.eval().to(devices(self._settings.device)[0])

    def write(self, texts: pa.Table, examples: list[str], on_progress: Callable[[int], None]) -> pa.Table:  # noqa: ARG002
        passages = texts["text"].to_pylist()
        queries: list[str] = []
        for start in range(0, len(passages), self._settings.batch_size):
            queries += self._generate(
                passages[start : start + self._settings.batch_size], int(texts["draw"][start].as_py())
            )
            on_progress(len(queries))
        return query_table(queries)

    def _generate(self, texts: list[str], draw: int) -> list[str]:
        import torch

        settings, (tokenizer, model) = self._settings, self._tokenizer_and_model
        batch = tokenizer(texts, truncation=True, max_length=settings.max_seq_length, padding=True, return_tensors="pt")
        with torch.random.fork_rng(), torch.inference_mode():
            torch.manual_seed(draw >> 33)  # torch on CPU uses 32 bits of the seed
            generated = model.generate(
                **batch.to(model.device), max_new_tokens=settings.max_new_tokens, do_sample=True, top_k=settings.top_k
            )
        return [" ".join(decoded.split()) for decoded in tokenizer.batch_decode(generated, skip_special_tokens=True)]
