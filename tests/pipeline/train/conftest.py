"""One adapted encoder for all tests here."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from darklode.flows.jobs.adapt_encoder import steps
from darklode.pipeline.base.artifacts import Output, Run, Step, Tables
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.term_vectors import TERM_VECTORS_STAGE, write_term_vectors
from darklode.pipeline.train.fit.heads import Head
from darklode.pipeline.train.fit.stage import TRAIN_STAGE
from darklode.pipeline.train.fit.term_start import TermStart
from darklode.pipeline.train.fit.weights import as_rows
from darklode.pipeline.train.release.verdict import VERDICT_STAGE
from darklode.pipeline.train.types import Weights
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.settings import Settings
from darklode.schemas.tables import TABLES
from helpers.adapted import base_for, build_to_adapt, settings_for
from helpers.runs import execute, read

QUICK = AdaptSettings(method="linear", max_steps=100, batch_size=16, learning_rates=(1e-4, 3e-4), refresh_steps=50)


@dataclass(frozen=True)
class Adapted:
    """A build, the encoder, and where all stages are complete."""

    root: Path
    source: Run
    base: BaseEncoder
    out: Run
    settings: Settings


@pytest.fixture(scope="session")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    """Nobody writes to it."""
    root = tmp_path_factory.mktemp("adapted")
    source = build_to_adapt(root / "run")
    base, settings = base_for(source, root=root), settings_for(root).model_copy(update={"adapt": QUICK})
    out = Run(str(root / "out"))
    for step in steps(base, settings):
        out.execute(step.plan(out), step.execute)
    return Adapted(root, source, base, out, settings)


def decided(adapted: Adapted, folder: Path, trained: Weights | None) -> Run:
    """The finished stages with other weights in them, or with the base as what is shipped."""
    run = Run(str(shutil.copytree(Path(adapted.out.store.url), folder)))
    row = read(run, "adapter_verdict")[0] | {"shipped": "adapted" if trained else "base", "share": 1.0}
    trial = {"trial": 0, "setting": "x", "share": 1.0, "step": 1, "validation": 1.0, "queries": 1}
    weights = as_rows(0, trained or Head(8, 1).state())

    def tried(_tables: Tables, output: Output) -> None:
        output.write("adaptation_trials", rows_of("adaptation_trials", trial))
        output.write("adapter_weights", weights)
        output.facts["parameters"] = sum(tensor.size for tensor in (trained or Head(8, 1).state()).values())

    if trained and TermStart.from_weights(trained):
        execute(run, TERM_VECTORS_STAGE, partial(write_term_vectors, base=adapted.base, enabled=True, seed=0))
    execute(run, TRAIN_STAGE, tried)
    execute(run, VERDICT_STAGE, lambda _, output: output.write("adapter_verdict", rows_of("adapter_verdict", row)))
    return run


def mixed_weights() -> Weights:
    """A head on query vectors that are mixed with term vectors, drawn at random."""
    draws = np.random.default_rng(5)
    weight, terms, residual = (draws.normal(size=(8, 8)).astype(np.float32) for _ in range(3))
    start = TermStart(0.5, 0.25, weight, draws.normal(size=8).astype(np.float32), terms)
    return {**Head.from_layers([(residual, np.zeros(8, np.float32))]).state(), **start.tensors()}


def rows_of(table: str, row: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([row], schema=TABLES[table].schema)


def redo(these: Sequence[Step], out: Run, stop_after: int | None = None) -> list[str]:
    """Run the stages that do not stand; returns what training told, which ends where it is stopped."""
    told: list[str] = []

    def report(_done: int, _total: int | None, note: str) -> None:
        told.append(note)
        if stop_after is not None and len(told) > stop_after:
            raise KeyboardInterrupt

    for step in these:
        if not (plan := step.plan(out)).is_up_to_date:
            out.execute(plan, step.execute, report if step.stage is TRAIN_STAGE else lambda *_: None)
    return told
