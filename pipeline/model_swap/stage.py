"""The stage `swap_trials`: fit all maps and select one."""

from __future__ import annotations

import time

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.model_swap.encoder_pair import EncoderPair, load_vectors
from darklode.pipeline.model_swap.selection import MapTrial, best_trial, fit_maps
from darklode.pipeline.train.fit.weights import as_rows, load_weights
from darklode.pipeline.train.types import Layers
from darklode.schemas.adaptation_tables import ADAPTER_WEIGHTS
from darklode.schemas.model_swap_tables import SWAP_TRIALS

FIT_STAGE = Stage("swap_trials", 1, ("swap_texts", "tower_queries"), (SWAP_TRIALS.name, ADAPTER_WEIGHTS.name))

MIN_VALIDATION = 10
"""Fewer validation queries cannot select among some fifty maps."""

BEST_OF_METHODS_SQL = """
    SELECT method, arg_max(trial, (recall_10, recall_100, -trial)) AS trial FROM swap_trials GROUP BY method
    ORDER BY trial
"""


def fit(tables: Tables, output: Output, pair: EncoderPair, *, seed: int) -> None:
    """Fit maps on training queries and documents; write all trials, and the weights of the best of each method.

    Args:
        tables: `swap_texts` and `tower_queries`.
        output: receives `swap_trials` and `adapter_weights`; its fact `seconds` is the time of fitting.
        pair: the encoders; missing vectors are computed first.
        seed: seed of the trained maps.

    Raises:
        ArtifactError: there are too few validation queries.
    """
    from darklode.pipeline.train.fit.heads import name_tensors

    vectors = load_vectors(tables, pair)
    n_validation = len(vectors.validation)
    if n_validation < MIN_VALIDATION:
        raise ArtifactError(
            f"only {n_validation} queries can be held out to select a map, at least {MIN_VALIDATION} are needed: add "
            "queries with --queries FILE"
        )
    began, fitted = time.perf_counter(), list[MapTrial]()

    def report(trial: MapTrial) -> None:
        fitted.append(trial)
        output.progress(len(fitted), None, f"{trial.method}: {trial.recall_10:.3f}")

    trials = fit_maps(vectors, seed, report)
    output.facts |= {"seconds": round(time.perf_counter() - began, 1), "documents fitted": len(vectors.fitted)}
    selected = best_trial(trials)
    rows = [
        {"trial": number, "selected": trial is selected}
        | {name: getattr(trial, name) for name in ("method", "setting", "recall_10", "recall_100")}
        for number, trial in enumerate(trials)
    ]
    output.write(SWAP_TRIALS.name, pa.Table.from_pylist(rows, schema=SWAP_TRIALS.schema))
    for method in dict.fromkeys(trial.method for trial in trials):
        best = best_trial(trials, method)
        output.write(ADAPTER_WEIGHTS.name, as_rows(trials.index(best), name_tensors(best.layers)))
    output.count(FunnelStep(FIT_STAGE.name, "texts to fit on", len(vectors.fitted), "maps", len(trials)))


def load_maps(tables: Tables) -> dict[str, Layers]:
    """The best map of each method, by method.

    Args:
        tables: `swap_trials` and `adapter_weights`.
    """
    from darklode.pipeline.train.fit.heads import layers_of

    rows = tables.sql(BEST_OF_METHODS_SQL).to_pylist()
    return {row["method"]: layers_of(load_weights(tables, row["trial"])) for row in rows}


def selected_method(tables: Tables) -> str:
    """Method of the selected map."""
    return str(tables.sql("SELECT method FROM swap_trials WHERE selected")["method"][0].as_py())


def load_selected(tables: Tables) -> Layers:
    """The selected map."""
    return load_maps(tables)[selected_method(tables)]
