"""The stage `distilled_judge`: a cross-encoder trained on the teacher's soft targets with the reranker's trainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, key_of
from darklode.pipeline.base.chunk_texts import TenantChunks, view
from darklode.pipeline.judge.pairs import distinct, pair_blocks
from darklode.pipeline.reranker.distil.sampling import TRAIN, VALIDATION
from darklode.pipeline.reranker.pairs import SoftPairs
from darklode.pipeline.reranker.stage import run_trial
from darklode.pipeline.train.fit.weights import as_rows, load_weights
from darklode.schemas.adaptation_tables import ADAPTER_WEIGHTS
from darklode.schemas.distil_tables import DISTILLED_PAIRS
from darklode.schemas.reranker import RerankerSettings
from darklode.schemas.reranker_tables import RERANKER_LOG

if TYPE_CHECKING:
    from darklode.pipeline.base.types import Doubles
    from darklode.pipeline.reranker.model import InitialReranker, TrainableReranker

DISTILLED_JUDGE_STAGE = Stage("distilled_judge", 1, (DISTILLED_PAIRS.name,), (RERANKER_LOG.name, ADAPTER_WEIGHTS.name))

BEST_TRIAL_SQL = (
    "SELECT trial, step, validation FROM reranker_log ORDER BY validation DESC NULLS LAST, trial, step LIMIT 1"
)


@dataclass(frozen=True)
class TeacherValidation:
    """Held-out pairs with the teacher's soft targets.

    Attributes:
        queries: query of each pair.
        texts: text of each pair, as retrievers see it.
        target: probability of relevance, shape (n_pairs,).
    """

    queries: Sequence[str]
    texts: Sequence[str]
    target: Doubles

    def pairs(self) -> tuple[list[str], list[str]]:
        """Query and text of each pair."""
        return list(self.queries), list(self.texts)

    def best_weight(self, scores: Doubles) -> tuple[float, float]:
        """1, and the area under the ROC curve of the scores (`soft_auc`)."""
        return 1.0, soft_auc(scores, self.target)


def soft_auc(scores: Doubles, target: Doubles) -> float:
    """Area under the ROC curve where a pair is relevant with probability `target`; .5 if all targets are equal.

    Args:
        scores: shape (n_pairs,).
        target: probabilities of relevance, same shape.
    """
    from sklearn.metrics import roc_auc_score

    if np.ptp(target) == 0:
        return 0.5
    label = np.repeat([True, False], len(scores))
    return float(roc_auc_score(label, np.tile(scores, 2), sample_weight=np.concatenate([target, 1 - target])))


@dataclass(frozen=True)
class PairTexts:
    """Rows of `distilled_pairs` of some parts with their texts, in the order of query_id and chunk_id."""

    rows: pa.Table
    queries: pa.ChunkedArray
    texts: pa.ChunkedArray

    @classmethod
    def of_part(cls, tables: Tables, source: Tables, part: str) -> PairTexts:
        """Look up the texts of a part.

        Args:
            tables: `distilled_pairs`.
            source: the judged run, which has the texts.
            part: train, validation or test.
        """
        rows = tables.sql("FROM distilled_pairs WHERE part = $1 ORDER BY query_id, chunk_id", [part])
        pairs = pa.concat_tables(pair_blocks(source, TenantChunks(source, rows["tenant"][0].as_py()), rows))
        return cls(rows, pairs["query"], view(pairs))

    def soft_pairs(self) -> SoftPairs:
        """Training pairs, each as often as it was drawn."""
        draws = self.rows["draws"].to_numpy()
        (queries, query), (texts, text) = distinct(self.queries), distinct(self.texts)
        target, weight = (np.repeat(self.rows[name].to_numpy(), draws) for name in ("target", "weight"))
        return SoftPairs(queries.to_pylist(), texts, np.repeat(query, draws), np.repeat(text, draws), target, weight)

    def validation(self) -> TeacherValidation:
        """The pairs for model selection."""
        target = self.rows["target"].to_numpy().astype(np.float64)
        return TeacherValidation(self.queries.to_pylist(), self.texts.to_pylist(), target)


def train_distilled(
    tables: Tables, output: Output, settings: RerankerSettings, source: Tables, initial: InitialReranker
) -> None:
    """Train a cross-encoder with each learning rate; write history and weights.

    Each trial is a resumable unit that continues from its last checkpoint.

    Args:
        tables: `distilled_pairs`.
        output: receives `reranker_log` and `adapter_weights`.
        settings: number of steps, batch size and learning rates.
        source: the judged run, which has the texts.
        initial: the model that training starts from.
    """
    pairs = PairTexts.of_part(tables, source, TRAIN).soft_pairs()
    validation = PairTexts.of_part(tables, source, VALIDATION).validation()
    inputs_key = key_of(tables.content(DISTILLED_PAIRS.name), initial.identity)
    for number, rate in enumerate(settings.learning_rates):
        trial_unit = f"{number}: {rate}", key_of(inputs_key, rate)
        with output.unit(*trial_unit) as unit:
            if not unit.done:
                state = output.state(*trial_unit)
                history = run_trial(output, pairs, validation, settings, initial, number, state)
                rows = [{"trial": number, **asdict(point)} for point in history.eval_points]
                output.write(RERANKER_LOG.name, pa.Table.from_pylist(rows, schema=RERANKER_LOG.schema))
                output.write(ADAPTER_WEIGHTS.name, as_rows(number, history.best_weights))
    n_trials = len(pc.unique(output.current_tables(RERANKER_LOG.name).read(RERANKER_LOG.name)["trial"]))
    output.count(FunnelStep(DISTILLED_JUDGE_STAGE.name, "draws", len(pairs), "models", n_trials))


def load_distilled(tables: Tables, initial: InitialReranker) -> TrainableReranker:
    """The model of the best trial at its best evaluation.

    Args:
        tables: `reranker_log` and `adapter_weights`.
        initial: as in training.
    """
    reranker = initial.open()
    reranker.restore(load_weights(tables, tables.sql(BEST_TRIAL_SQL)["trial"][0].as_py()))
    return reranker
