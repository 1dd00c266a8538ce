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
from darklode.pipeline.train.data.sources import TrainingSource, texts_of
from darklode.pipeline.train.fit import distributed
from darklode.pipeline.train.fit.weights import as_rows, from_rows
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.adaptation_tables import ADAPTER_WEIGHTS
from darklode.schemas.tower_tables import DUAL_LOG, DUAL_TRIALS, TOWER_TRIPLETS
from darklode.schemas.towers import DualSettings

if TYPE_CHECKING:
    from darklode.pipeline.towers.dual.towers import DualTowers
    from darklode.pipeline.towers.dual.training import DualEval, ValidationSample
    from darklode.pipeline.towers.periodic_evaluation import MonitorHistory

READS = ("adaptation_queries", "adaptation_labels", "adaptation_texts", TOWER_TRIPLETS.name)
TRAINED = Stage("dual_trials", 3, READS, (DUAL_LOG.name, DUAL_TRIALS.name, ADAPTER_WEIGHTS.name))

TEXTS = 5
"""Texts in the validation sample per query, besides the queries' positives."""

FIRST = 512
"""Triplets from which the projections are initialized."""

SAMPLED = """
    WITH asked AS (
        FROM adaptation_queries WHERE split = 'validation' ORDER BY md5(concat($seed, query_id)), query_id LIMIT $most
    ), answers AS (
        SELECT query_id, text_id FROM adaptation_labels SEMI JOIN asked USING (tenant, query_id)
        JOIN adaptation_texts USING (tenant, text_id) WHERE relevance > 0
    ), others AS (
        SELECT text_id FROM adaptation_texts ANTI JOIN answers USING (text_id)
        ORDER BY md5(concat($seed, text_id)), text_id LIMIT (SELECT $texts * count(*) FROM asked)
    )
"""
ASKED = f"{SAMPLED} SELECT query_id, text FROM asked SEMI JOIN answers USING (query_id) ORDER BY query_id"
ANSWERS = f"{SAMPLED} SELECT query_id, text_id FROM answers ORDER BY ALL"
OTHERS = f"""
    {SAMPLED} FROM adaptation_texts SEMI JOIN (SELECT text_id FROM answers UNION ALL FROM others) USING (text_id)
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
        """Everything that can change a vector."""
        return {"begins as": self.encoder.encoder_id(), "is asked": DecoderPrompt.load(self.prompt).digest()}

    def open(self, dual: DualSettings, adapt: AdaptSettings) -> DualTowers:
        """Load both towers in float32; the projections are random until `initialize`."""
        from darklode.pipeline.towers.dual.towers import DualTowers

        return DualTowers(self.encoder, dual, adapt)


def train_both(
    tables: Tables, output: Output, dual: DualSettings, adapt: AdaptSettings, beginning: DualInputs, *, seed: int
) -> None:
    """Train both towers with each learning rate and temperature; write history, validation scores and weights.

    Each trial is a resumable unit: a killed trial continues from its last checkpoint. With several processes this is
    the leader; the others run `follow_leader` and must receive the same settings and seed.

    Raises:
        ArtifactError: no validation query has a positive.
    """
    validation_sample = validation_sample_of(tables, beginning.sources, dual.eval_queries, seed)
    basis = key_of(*(tables.content(name) for name in READS), beginning.identity)
    tried = list(product(dual.learning_rates, dual.temperatures))
    for number, (rate, temperature) in enumerate(tried):
        trial_name = f"{number}: {rate} {temperature}", key_of(basis, rate, temperature)
        with output.unit(*trial_name) as unit:
            if not unit.done:
                done = number * dual.max_steps

                def tell(step: int, message: str, done: int = done) -> None:
                    output.progress(done + step, len(tried) * dual.max_steps, message)

                towers, tried_now = (dual, adapt, beginning), (rate, temperature, seed)
                state = output.state(*trial_name)
                distributed.broadcast_order((number, state.name))
                course = run_trial(tables, validation_sample, towers, tried_now, tell, state)
                _write(output, number, (rate, temperature), course)
    rows = output.rows(DUAL_TRIALS.name)
    output.count(FunnelStep(TRAINED.name, "triplets", tables.rows(TOWER_TRIPLETS.name), "pairs of towers", rows))


def follow_leader(run: Run, dual: DualSettings, adapt: AdaptSettings, beginning: DualInputs, *, seed: int) -> None:
    """Take part in the leader's training steps from another process; only the leader writes.

    All arguments must equal those of the leader's `train_both`, or the processes' gradients do not match.
    """
    for number, state in distributed.orders():
        tables = run.tables(*READS)
        validation_sample = validation_sample_of(tables, beginning.sources, dual.eval_queries, seed)
        tried = list(product(dual.learning_rates, dual.temperatures))[number]
        run_trial(
            tables,
            validation_sample,
            (dual, adapt, beginning),
            (*tried, seed),
            lambda *_: None,
            State(run.store, state),
        )


def run_trial(
    tables: Tables,
    validation_sample: ValidationSample,
    towers: tuple[DualSettings, AdaptSettings, DualInputs],
    tried: tuple[float, float, int],
    tell: Any,
    state: State | None = None,
) -> MonitorHistory[DualEval]:
    """Train one pair of towers.

    Args:
        tables: `tower_triplets`.
        validation_sample: for evaluation.
        towers: settings and initial encoder.
        tried: learning rate, τ and seed.
        tell: progress callback.
        state: stores checkpoints; None: none.
    """
    from darklode.pipeline.towers.dual.training import DualTrial, train_towers
    from darklode.pipeline.towers.dual.triplet_batches import Stream
    from darklode.pipeline.train.fit.loop import deterministic

    dual, adapt, beginning = towers
    with deterministic(tried[2]):
        pair, stream = initial_towers(tables, dual, adapt, beginning), Stream(tables, dual.batch_size, tried[2])
        return train_towers(stream, validation_sample, pair, dual, DualTrial(*tried), tell, state)


def initial_towers(tables: Tables, dual: DualSettings, adapt: AdaptSettings, beginning: DualInputs) -> DualTowers:
    """The towers at the start of a trial; projections are initialized from the first triplets."""
    pair = beginning.open(dual, adapt)
    first = next(tables.batches(TOWER_TRIPLETS.name, ["query", "title", "content"], FIRST))
    texts = pc.binary_join_element_wise(first["title"], first["content"], "\n", null_handling="skip")
    pair.initialize(texts.to_pylist(), first["query"].to_pylist())
    return pair


def validation_sample_of(
    tables: Tables, sources: Sequence[TrainingSource], max_queries: int, seed: int
) -> ValidationSample:
    """A sample of validation queries with their positives and random other texts; depends on seed and ids only.

    Raises:
        ArtifactError: no validation query has a positive.
    """
    from darklode.pipeline.towers.dual.training import ValidationSample

    parameters = {"seed": str(seed), "most": max_queries, "texts": TEXTS}
    with tables.connect(OTHERS + ANSWERS) as connection:
        query_rows, answers, texts = (
            connection.sql(query, params={name: value for name, value in parameters.items() if f"${name}" in query})
            .to_arrow_table()
            .combine_chunks()
            for query in (ASKED, ANSWERS, OTHERS)
        )
    if not query_rows.num_rows:
        raise ArtifactError(
            "no validation query has a positive to look at; raise split.validation_share and build again"
        )
    right = np.zeros((query_rows.num_rows, texts.num_rows), bool)
    rows = pc.index_in(answers["query_id"], query_rows["query_id"].combine_chunks())
    columns = pc.index_in(answers["text_id"], texts["text_id"].combine_chunks())
    right[rows.to_numpy(), columns.to_numpy()] = True
    return ValidationSample(query_rows["text"].to_pylist(), view(texts_of(sources, texts)).to_pylist(), right)


def _write(output: Output, number: int, tried: tuple[float, float], course: MonitorHistory[DualEval]) -> None:
    looks = [{"trial": number, **asdict(look)} for look in course.eval_points]
    row = {"trial": number, "learning_rate": tried[0], "temperature": tried[1]}
    row |= {"step": course.step, "validation": course.last_eval.validation}
    output.write(DUAL_LOG.name, pa.Table.from_pylist(looks, schema=DUAL_LOG.schema))
    output.write(DUAL_TRIALS.name, pa.Table.from_pylist([row], schema=DUAL_TRIALS.schema))
    output.write(ADAPTER_WEIGHTS.name, as_rows(number, course.best_weights))


def best_towers(tables: Tables, beginning: DualInputs, dual: DualSettings, adapt: AdaptSettings) -> DualTowers:
    """The towers of the best trial at its best evaluation; the first one wins ties."""
    best_trial = tables.sql("FROM dual_trials ORDER BY validation DESC, trial LIMIT 1")["trial"][0].as_py()
    towers = beginning.open(dual, adapt)
    towers.restore(from_rows(tables.sql("FROM adapter_weights WHERE trial = $1 ORDER BY tensor, row", [best_trial])))
    return towers
