"""What an ablation compares: methods with the real labels, controls with weaker labels, and reference rankings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.types import Ints
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.dataset import QuerySet, Task
from darklode.pipeline.train.data.fusion import by_value
from darklode.pipeline.train.data.inverse_cloze import inverse_cloze
from darklode.pipeline.train.data.labels import Labels
from darklode.pipeline.train.release.bm25_rankings import Bm25Rankings
from darklode.pipeline.train.release.label_free import LabelFree
from darklode.schemas.adaptation import AdaptSettings

if TYPE_CHECKING:
    from darklode.pipeline.train.fit.methods import Method

DETERMINISTIC_METHODS = ("closed_form", "whitened")
"""Deterministic methods, for which one seed suffices."""

SHUFFLED_SUFFIX = ", labels: shuffled"
"""Suffix of the control's name: no label can explain its gain."""

# Suffixes of the controls with labels that cost nothing.
CLOZE_SUFFIX = ", labels: sentences of the texts"
BM25_SUFFIX = ", labels: BM25's first"

JOINT = "joint"
"""Trains queries and documents together; not releasable by `adapt`, because the index changes."""


def _method(settings: AdaptSettings, base: BaseEncoder) -> Method:
    from darklode.pipeline.train.fit.method_registry import create_method

    return create_method(settings, base)


def _joint(settings: AdaptSettings, base: BaseEncoder) -> Method:
    from darklode.pipeline.train.fit.joint import JointMethod

    return JointMethod(settings, base)


@dataclass(frozen=True)
class Baseline:
    """A method with its settings and labels; all share the training queries, steps and seeds.

    Attributes:
        name: the system's name in the tables.
        settings: settings of the method.
        labels: builds the training task for a seed.
        is_random: whether the seed has an effect.
        method: creates the method.
    """

    name: str
    settings: AdaptSettings
    labels: Callable[[Task, int], Task]
    is_random: bool = True
    method: Callable[[AdaptSettings, BaseEncoder], Method] = _method


def baselines(settings: AdaptSettings, methods: Sequence[str], bm25: Bm25Rankings, n_queries: int) -> list[Baseline]:
    """The methods and, for the first trained one, the controls: fixed negatives, BM25, inverse cloze and shuffled
    labels.

    Args:
        settings: shared; their method is ignored.
        methods: names; the first trained one gets the controls.
        bm25: supplies BM25 labels and the texts.
        n_queries: number of training queries, which decides how long encoders are trained.
    """
    candidates = [
        Baseline(name, settings.with_method(name, n_queries), lambda task, _: task, name not in DETERMINISTIC_METHODS)
        for name in methods
        if name != JOINT
    ]
    first = next((baseline for baseline in candidates if baseline.is_random), None)
    if first:
        fixed = first.settings.model_copy(update={"refresh_steps": first.settings.n_steps})
        candidates += [
            replace(first, name=f"{first.name}, negatives never refreshed", settings=fixed),
            replace(first, name=f"{first.name}{BM25_SUFFIX}", labels=lambda task, _: bm25.training_pairs(task)),
            replace(first, name=f"{first.name}{CLOZE_SUFFIX}", labels=inverse_cloze(bm25.base, bm25.frozen)),
            replace(first, name=f"{first.name}{SHUFFLED_SUFFIX}", labels=shuffle_labels),
        ]
    if JOINT in methods:
        full_settings = settings.with_method("full", n_queries).model_copy(update={"init": "base"})
        candidates.append(Baseline(JOINT, full_settings, lambda task, _: task, method=_joint))
    return candidates


def shuffle_labels(task: Task, seed: int) -> Task:
    """The same positives assigned to other queries, never to one they are a positive of: the labels carry no signal.

    Pairs for which no such query exists are dropped.

    Raises:
        ArtifactError: no pair can be reassigned.
    """
    random = np.random.default_rng([seed, 2])  # 2 tells this random stream apart from others of the same seed
    position = derange(task.pair_query, task.pair_position, task.labels, random)
    is_wrong = ~task.labels.contains(task.pair_query, position)
    if not is_wrong.any():
        raise ArtifactError("labels cannot be shuffled: each text is a positive of every query; label more queries")
    return task.from_training_pairs(task.pair_query[is_wrong], position[is_wrong])


def derange(query: Ints, position: Ints, labels: Labels, random: np.random.Generator) -> Ints:
    """A random order of positions in which no query has its own, except where no swap of two can achieve that.

    Args:
        query: query of each pair.
        position: positive of each pair.
        labels: all positives of the queries.
        random: generator.
    """
    permuted = random.permutation(position)
    for pair in np.flatnonzero(labels.contains(query, permuted)).tolist():
        if labels.contains(query[pair], permuted[pair]):
            spoiled = labels.contains(query, permuted[pair]) & ~labels.contains(query, permuted)
            own = labels.contains(query[pair], permuted) | spoiled
            if len(other_rows := np.flatnonzero(~own)):
                other = random.choice(other_rows)
                permuted[pair], permuted[other] = permuted[other], permuted[pair]
    return permuted


def reference_systems(task: Task, bm25: Bm25Rankings, selection: QuerySet, queries: QuerySet) -> dict[str, pa.Table]:
    """Rankings that need no training: the label-free systems, and the judge's order of labelled texts.

    Args:
        task: text vectors and train queries.
        bm25: BM25 over the texts.
        selection: queries to select the label-free systems' parameters on.
        queries: queries to rank.
    """
    systems = LabelFree.select(task, bm25, selection).rankings(queries)
    judged = queries.labels.filter(pc.is_valid(queries.labels["probability"]))
    if judged.num_rows:
        systems["judge: labelled texts by its probability"] = by_value(judged, "probability")
    return systems
