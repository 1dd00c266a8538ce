"""How both towers learn: batches of triplets, looks at validation queries, the best weights kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.distributed as processes
from numpy.typing import NDArray
from torch import Tensor, nn

from darklode.pipeline.towers.checkpoint import Checkpoints, Kept, Nowhere
from darklode.pipeline.towers.course import adamw, schedule
from darklode.pipeline.towers.dual.loss import Compared, contrastive, hard
from darklode.pipeline.towers.dual.stream import Stream, allowed
from darklode.pipeline.towers.dual.towers import Towers
from darklode.pipeline.towers.watch import Course, Tell, Watch, shown
from darklode.pipeline.train import fitting
from darklode.schemas.towers import DualSettings

LOOKS = 10
"""At the validation queries, in a trial, besides that before its first step."""


@dataclass(frozen=True)
class Look:
    """A row of `dual_log`."""

    step: int
    contrastive: float | None
    margin: float | None
    validation: float

    @property
    def worth(self) -> float:
        """See `watch.Look`."""
        return self.validation


@dataclass(frozen=True)
class Sample:
    """What is looked at in training.

    Attributes:
        queries: validation queries.
        texts: their positives, and others.
        right: which text answers which query, shape (n_queries, n_texts).
    """

    queries: Sequence[str]
    texts: Sequence[str]
    right: NDArray[np.bool_]

    def reached(self, towers: Towers) -> float:
        """Mean reciprocal rank of each query's first positive among the texts; of equals it is the last."""
        scores = towers.encode(self.queries, queries=True) @ towers.encode(self.texts, queries=False).T
        best = np.where(self.right, scores, -np.inf).max(axis=1, keepdims=True)
        return float((1 / (1 + ((scores >= best) & ~self.right).sum(axis=1))).mean())


@dataclass(frozen=True)
class Trial:
    """What is tried.

    Attributes:
        rate: the highest; it rises for a tenth of the steps, and falls to 0 along a line.
        temperature: τ.
        seed: of the order of the triplets.
    """

    rate: float
    temperature: float
    seed: int


def learn(  # noqa: PLR0913, PLR0917 (what learns, from what, how, and who is told)
    stream: Stream,
    sample: Sample,
    towers: Towers,
    dual: DualSettings,
    trial: Trial,
    tell: Tell,
    kept: Kept | None = None,
) -> Course[Look]:
    """Train both towers by sentence-transformers' trainer.

    Started by torchrun, each process encodes its share of every batch, and all are compared with all; the steps are
    those of one process.

    Args:
        stream: the triplets.
        sample: to look at.
        towers: learn where they are.
        dual: views, losses and steps.
        trial: rate, τ and seed.
        tell: hears of each look: steps done, and what was seen.
        kept: where the trial's state lies; it goes on from there. None: nowhere.
    """
    if dual.checkpointing:
        towers.checkpoint()
    optimiser = adamw(towers.parameters(), trial.rate)
    rates = schedule(optimiser, dual.steps)
    watch = _Watch(sample, towers, dual, tell, Checkpoints(kept or Nowhere(), towers, (optimiser, rates)))
    done = watch.resume(Look)
    stream.skip(done)
    training = fitting.Training(
        stream.slots,
        Tokens(stream, towers),
        Loss(towers.model, stream, dual, trial.temperature, watch.seen),
        lambda step: watch.goes_on(done + step),
        optimiser,
        rates,
    )
    steps = fitting.Steps(dual.steps - done, stream, "dual.batch", trial.seed, dual.report_to)
    fitting.fit(towers.model, steps, training)
    return watch.course


class Tokens:
    """Tokens of the queries and documents of a batch's slots, and the slots."""

    valid_label_columns = ("label",)

    def __init__(self, stream: Stream, towers: Towers) -> None:
        self._stream, self._towers = stream, towers

    def __call__(self, rows: list[dict[str, int]]) -> dict[str, Tensor]:
        slots = [row["label"] for row in rows]
        batch = self._stream.rows(slots)
        found = {f"query_{name}": one for name, one in self._towers.query_features(_of(batch, "query")).items()}
        titles, contents = _of(batch, "title"), _of(batch, "content")
        read = self._towers.document_features(
            [*titles, *_of(batch, "negative_title")], [*contents, *_of(batch, "negative_content")]
        )
        return found | {f"document_{name}": one for name, one in read.items()} | {"label": torch.tensor(slots)}


def _of(batch: pa.Table, column: str) -> list[Any]:
    found: list[Any] = batch[column].to_pylist()
    return found


class Loss(nn.Module):
    """L^con + α L^hard (ScalingNote, Eq. 12) over the batches of all processes, outside of mixed precision."""

    def __init__(self, model: Any, stream: Stream, dual: DualSettings, temperature: float, seen: list[Tensor]) -> None:
        super().__init__()
        self.model, self._stream, self._dual, self._temperature = model, stream, dual, temperature
        self._seen = seen

    def forward(self, features: list[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """The loss of a batch, from the tokens of its queries and documents, and its slots."""
        queries, documents, there = self.model(tuple(features))
        with torch.autocast(queries.device.type, enabled=False):
            batch = self._compared(queries.float(), documents.float(), there, labels)
            parts = (
                contrastive(batch, self._dual.nested, self._temperature),
                hard(batch, self._dual.nested, self._dual.margin),
            )
        self._seen.append(torch.stack([one.detach() for one in parts]))
        return parts[0] + self._dual.margin_weight * parts[1]

    def _compared(self, queries: Tensor, documents: Tensor, there: Tensor, labels: Tensor) -> Compared:
        n, slots = len(queries), gathered(labels).tolist()
        counts = torch.from_numpy(allowed(self._stream.rows(slots))).to(queries.device)
        right, wrong, first, second = (
            gathered(one, 1) for one in (documents[:, :n], documents[:, n:], there[:, :n], there[:, n:])
        )
        return Compared(gathered(queries), right, wrong, first, second, counts)


def gathered(values: Tensor, dim: int = 0) -> Tensor:
    """The values of all processes, one after the other; of a single one its own.

    Each process has the gradient of its own values alone, as many times as there are processes: the mean over them,
    which DistributedDataParallel takes, is then the gradient of the whole.
    """
    if not processes.is_initialized():
        return values
    count, given = processes.get_world_size(), values.detach().contiguous()
    given = given if given.is_floating_point() else given.to(torch.int64)  # gloo knows no booleans
    parts = [torch.empty_like(given) for _ in range(count)]
    processes.all_gather(parts, given)
    found = [one.to(values.dtype) for one in parts]
    own = values.clone()
    if own.requires_grad:
        own.register_hook(lambda gradient: gradient * count)  # type: ignore[no-untyped-call]
    found[processes.get_rank()] = own
    return torch.cat(found, dim)


class _Watch(Watch[Look]):
    """How high validation queries rank their positives."""

    def __init__(
        self, sample: Sample, towers: Towers, dual: DualSettings, tell: Tell, checkpoints: Checkpoints
    ) -> None:
        super().__init__(dual.steps, LOOKS, checkpoints, tell)
        self._sample, self._towers = sample, towers

    def look(self, step: int, first: float | None, second: float | None) -> tuple[Look, str]:
        reached = self._sample.reached(self._towers)
        said = f"L^con {shown(first, 3)}, L^hard {shown(second, 3)}, validation {reached:.4f}"
        return Look(step, first, second, reached), said
