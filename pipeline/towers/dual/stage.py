"""The stage `dual_trials`: train both towers with each learning rate and temperature; select on validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Run, Stage, State, Tables, key_of
from darklode.pipeline.base.chunk_texts import view
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.dual.prompt import DecoderPrompt
from darklode.pipeline.towers.dual.trial_settings import TrialSettings
from darklode.pipeline.train.data.sources import TrainingSource, texts_of
from darklode.pipeline.train.fit import distributed
from darklode.pipeline.train.fit.weights import as_rows, load_weights
from darklode.pipeline.train.types import OnStep
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.adaptation_tables import ADAPTER_WEIGHTS
from darklode.schemas.tower_tables import DUAL_LOG, DUAL_TRIALS, TOWER_TRIPLETS
from darklode.schemas.towers import DualSettings

if TYPE_CHECKING:
    from darklode.pipeline.towers.dual.towers import DualTowers
    from darklode.pipeline.towers.dual.training import DualEval, ValidationSample
    from darklode.pipeline.train.fit.trial import TrainingHistory

READS = ("adaptation_queries", "adaptation_labels", "adaptation_texts", TOWER_TRIPLETS.name)
DUAL_TRIALS_STAGE = Stage("dual_trials", 4, READS, (DUAL_LOG.name, DUAL_TRIALS.name, ADAPTER_WEIGHTS.name))

TEXTS_PER_QUERY = 5
"""Random other texts in the validation sample per query, in addition to the positives."""

N_INITIALIZATION_TRIPLETS = 512
"""Number of triplets, the first ones, whose texts and queries initialize the projections."""

# The sampled validation queries, their `answers` (positives) and `other_texts`; what each of the queries below begins
# with, so that they see the same sample.
VALIDATION_SAMPLE_SQL = """
    WITH sampled_queries AS (
        FROM adaptation_queries WHERE split = 'validation'
        ORDER BY md5(concat($seed, query_id)), query_id LIMIT $max_queries
    ), answers AS (
        SELECT query_id, text_id FROM adaptation_labels SEMI JOIN sampled_queries USING (tenant, query_id)
        JOIN adaptation_texts USING (tenant, text_id) WHERE relevance > 0
    ), other_texts AS (
        SELECT text_id FROM adaptation_texts ANTI JOIN answers USING (text_id)
        ORDER BY md5(concat($seed, text_id)), text_id LIMIT (SELECT $texts * count(*) FROM sampled_queries)
    )
"""
SAMPLED_QUERIES_SQL = f"""
    {VALIDATION_SAMPLE_SQL} SELECT query_id, text FROM sampled_queries SEMI JOIN answers USING (query_id)
    ORDER BY query_id
"""
SAMPLED_ANSWERS_SQL = f"{VALIDATION_SAMPLE_SQL} SELECT query_id, text_id FROM answers ORDER BY ALL"
SAMPLED_TEXTS_SQL = f"""
    {VALIDATION_SAMPLE_SQL} FROM adaptation_texts
    SEMI JOIN (SELECT text_id FROM answers UNION ALL FROM other_texts) USING (text_id)
    ORDER BY index, text_id
"""


@dataclass(frozen=True)
class DualInputs:
    """The initial encoder of both towers and the runs with the texts.

    Attributes:
        encoder: a sentence-transformers model with its prompts.
        sources: the runs whose texts are encoded.
        prompt: name of a decoder's prompt (`dual.prompt`).
    """

    encoder: SentenceTransformersSettings
    sources: tuple[TrainingSource, ...]
    prompt: str = DualSettings().prompt

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change a vector; part of the trials' keys, so renaming an entry repeats all training."""
        return {"begins as": self.encoder.encoder_id(), "is asked": DecoderPrompt.load(self.prompt).digest()}

    def open(self, dual: DualSettings, adapt: AdaptSettings) -> DualTowers:
        """Load both towers in float32; the projections are random until `initialize`."""
        from darklode.pipeline.towers.dual.towers import DualTowers

        return DualTowers(self.encoder, dual, adapt)


def train_both(
    tables: Tables, output: Output, dual: DualSettings, adapt: AdaptSettings, inputs: DualInputs, *, seed: int
) -> None:
    """Train both towers with each learning rate and temperature; write history, validation scores and weights.

    Each trial is a resumable unit: a killed trial continues from its last checkpoint. With several processes (torchrun)
    the leader runs this function; the others run `follow_leader` and must receive the same settings and seed.

    Args:
        tables: `tower_triplets` and the tables of `adaptation_pairs`.
        output: receives `dual_log`, `dual_trials` and `adapter_weights`.
        dual: settings of the towers, including the learning rates and temperatures to try.
        adapt: rank, alpha and target modules of LoRA.
        inputs: the initial encoder and the runs with the texts.
        seed: seed of the validation sample and of the order of triplets.

    Raises:
        ArtifactError: no validation query has a positive.
    """
    validation_sample = validation_sample_of(tables, inputs.sources, dual.eval_queries, seed)
    inputs_key = key_of(*(tables.content(name) for name in READS), inputs.identity)
    grid = list(product(dual.learning_rates, dual.temperatures))
    for number, (rate, temperature) in enumerate(grid):
        trial_unit = f"{number}: {rate} {temperature}", key_of(inputs_key, rate, temperature)
        with output.unit(*trial_unit) as unit:
            if not unit.done:
                steps_before = number * dual.max_steps

                def on_step(step: int, message: str, steps_before: int = steps_before) -> None:
                    output.progress(steps_before + step, len(grid) * dual.max_steps, message)

                towers = (dual, adapt, inputs)
                trial = TrialSettings(rate, temperature, seed)
                state = output.state(*trial_unit)
                distributed.broadcast_work_item((number, state.name))
                history = run_trial(tables, validation_sample, towers, trial, on_step, state)
                _write(output, number, trial, history)
    n_triplets = tables.rows(TOWER_TRIPLETS.name)
    n_trials = output.rows(DUAL_TRIALS.name)
    output.count(FunnelStep(DUAL_TRIALS_STAGE.name, "triplets", n_triplets, "pairs of towers", n_trials))


def follow_leader(run: Run, dual: DualSettings, adapt: AdaptSettings, inputs: DualInputs, *, seed: int) -> None:
    """Take part in the leader's training steps from another process; only the leader writes.

    All arguments must equal those of the leader's `train_both`, or the processes' gradients do not match.
    """
    for number, state in distributed.work_items():
        tables = run.tables(*READS)
        validation_sample = validation_sample_of(tables, inputs.sources, dual.eval_queries, seed)
        rate, temperature = list(product(dual.learning_rates, dual.temperatures))[number]
        trial = TrialSettings(rate, temperature, seed)
        towers = (dual, adapt, inputs)
        run_trial(tables, validation_sample, towers, trial, lambda *_: None, State(run.store, state))


def run_trial(
    tables: Tables,
    validation_sample: ValidationSample,
    towers: tuple[DualSettings, AdaptSettings, DualInputs],
    trial: TrialSettings,
    on_step: OnStep,
    state: State,
) -> TrainingHistory[DualEval]:
    """Train one pair of towers with one learning rate and temperature.

    Args:
        tables: has `tower_triplets`.
        validation_sample: queries and texts that the towers are evaluated on.
        towers: settings of the towers and of LoRA, and the initial encoder.
        trial: learning rate, τ and seed.
        on_step: progress callback.
        state: stores the checkpoints of the trial.
    """
    from darklode.pipeline.towers.dual.training import train_towers
    from darklode.pipeline.towers.dual.triplet_batches import TripletStream
    from darklode.pipeline.train.fit.determinism import deterministic

    dual, adapt, inputs = towers
    with deterministic(trial.seed):
        initial = initial_towers(tables, dual, adapt, inputs)
        stream = TripletStream(tables, dual.batch_size, trial.seed)
        return train_towers(stream, validation_sample, initial, dual, trial, on_step, state)


def initial_towers(tables: Tables, dual: DualSettings, adapt: AdaptSettings, inputs: DualInputs) -> DualTowers:
    """Open the towers as a trial starts with them: the projections are initialized from the first triplets."""
    towers = inputs.open(dual, adapt)
    first_triplets = next(tables.batches(TOWER_TRIPLETS.name, ["query", "title", "content"], N_INITIALIZATION_TRIPLETS))
    texts = pc.binary_join_element_wise(first_triplets["title"], first_triplets["content"], "\n", null_handling="skip")
    towers.initialize(texts.to_pylist(), first_triplets["query"].to_pylist())
    return towers


def validation_sample_of(
    tables: Tables, sources: Sequence[TrainingSource], max_queries: int, seed: int
) -> ValidationSample:
    """Draw validation queries, with their positives and random other texts; the draw depends on seed and ids only.

    Args:
        tables: the tables of `adaptation_pairs`.
        sources: the runs that have the texts.
        max_queries: maximum number of queries.
        seed: seed of the draw.

    Raises:
        ArtifactError: no validation query has a positive.
    """
    from darklode.pipeline.towers.dual.training import ValidationSample

    parameters = {"seed": str(seed), "max_queries": max_queries, "texts": TEXTS_PER_QUERY}
    with tables.connect(SAMPLED_TEXTS_SQL + SAMPLED_ANSWERS_SQL) as connection:
        query_rows, positives, texts = (
            connection.sql(sql, params={name: value for name, value in parameters.items() if f"${name}" in sql})
            .to_arrow_table()
            .combine_chunks()
            for sql in (SAMPLED_QUERIES_SQL, SAMPLED_ANSWERS_SQL, SAMPLED_TEXTS_SQL)
        )
    if not query_rows.num_rows:
        raise ArtifactError("no validation query has a positive; raise split.validation_share and build again")
    is_positive = np.zeros((query_rows.num_rows, texts.num_rows), bool)
    query_numbers = pc.index_in(positives["query_id"], query_rows["query_id"].combine_chunks())
    text_numbers = pc.index_in(positives["text_id"], texts["text_id"].combine_chunks())
    is_positive[query_numbers.to_numpy(), text_numbers.to_numpy()] = True
    return ValidationSample(query_rows["text"].to_pylist(), view(texts_of(sources, texts)).to_pylist(), is_positive)


def _write(output: Output, number: int, trial: TrialSettings, history: TrainingHistory[DualEval]) -> None:
    """Write a trial's evaluations, its best validation score and its best weights."""
    log_rows = [{"trial": number, **asdict(point)} for point in history.eval_points]
    row = {"trial": number, "learning_rate": trial.rate, "temperature": trial.temperature}
    row |= {"step": history.step, "validation": history.best_point.validation}
    output.write(DUAL_LOG.name, pa.Table.from_pylist(log_rows, schema=DUAL_LOG.schema))
    output.write(DUAL_TRIALS.name, pa.Table.from_pylist([row], schema=DUAL_TRIALS.schema))
    output.write(ADAPTER_WEIGHTS.name, as_rows(number, history.best_weights))


def best_towers(tables: Tables, inputs: DualInputs, dual: DualSettings, adapt: AdaptSettings) -> DualTowers:
    """Open the towers with the weights of the best trial's best evaluation; the first trial wins ties."""
    best_trial = tables.sql("FROM dual_trials ORDER BY validation DESC, trial LIMIT 1")["trial"][0].as_py()
    towers = inputs.open(dual, adapt)
    towers.restore(load_weights(tables, best_trial))
    return towers
