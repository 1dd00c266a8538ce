"""The card of a reranker: results beside what needs no training, cost per query, and how to use it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.card import cell, changed_settings, document, name_of, software, with_front_matter
from darklode.pipeline.base.models.local import RERANKER_FOLDER
from darklode.pipeline.reranker.candidates import CANDIDATES_STAGE
from darklode.pipeline.reranker.evaluation import RERANKER_TEST_STAGE
from darklode.pipeline.reranker.training_pairs import RERANKER_PAIRS_STAGE
from darklode.pipeline.reranker.verdict import SCORES_SQL, SHIPPED, read_reranker_verdict
from darklode.pipeline.train.release.card import licence
from darklode.pipeline.train.release.folder import recorded_difference
from darklode.schemas.settings import Settings

if TYPE_CHECKING:
    from darklode.pipeline.reranker.model import InitialReranker

USAGE_NOTE = """\
```python
from sentence_transformers import CrossEncoder

scores = CrossEncoder("{folder}").predict([("a query", "a text")])
```
Its scores differ from those in training by at most {off:.1e}. In Darklode: a retriever of kind `rerank`, or
`judge.kind: cross_encoder`, with this folder as `model`, for tenant `{tenant}` only."""

NOT_RELEASED = "No reranker is released. The trained weights are in the table `adapter_weights`."

CAVEATS = """\
The labels are those of the runs: if a judge gave them, a gain is a gain according to that judge. Unjudged texts count
as not relevant; `Judged@10` is the share of the top ten with a label. A gain holds for these candidates; others can
need another weight."""

SCORES_NOTE = """\
On test queries whose clusters and positives are not in training. `candidates` is their own order, `base` the encoder
alone; `low` and `high` are a 95 % interval of the difference; the best order is what a reranker could reach at most."""

TRIALS_SQL = """
    SELECT learning_rate, step, weight, validation, candidates, base, queries, stopped FROM reranker_trials
    ORDER BY trial
"""
TRAINING_LOG_SQL = "SELECT trial, step, loss, validation, weight FROM reranker_log ORDER BY trial, step"


def card(run: Run, settings: Settings, initial: InitialReranker, sources: list[str]) -> bytes:
    """Write the card in Markdown.

    Args:
        run: a run with complete stages and the saved folder.
        settings: the settings that the run used.
        initial: the model that training started from.
        sources: the training runs, as given.
    """
    tables, manifests = run.tables(), run.manifests()
    verdict = read_reranker_verdict(tables)
    candidates, test = manifests[CANDIDATES_STAGE.name].facts, manifests[RERANKER_TEST_STAGE.name].facts
    pairs = manifests[RERANKER_PAIRS_STAGE.name].facts
    begun = "a cross-encoder" if initial.is_cross_encoder else "a bi-encoder, with a new head"
    head = [
        f"# {cell(name_of(run, settings))}",
        f"A reranker for tenant `{cell(verdict['tenant'])}`. Released: {verdict['shipped']}.",
        f"{cell(verdict['reason'])}.",
        f"Initialized from `{cell(initial.identity['model'])}` ({begun}), trained on "
        f"{', '.join(f'`{cell(source)}`' for source in sources)}: {pairs['positives']:,} positives, "
        f"{pairs['negatives']:,} negatives.",
        f"It orders {candidates['candidates']} candidates of BM25 and the encoder, "
        f"{_fusion(candidates['encoder weight'])}, with weight {verdict['weight']:g}; the candidates' own scores "
        "have the rest. "
        f"{test['milliseconds']:g} ms per query for {test['pairs']:g} candidates on one core; "
        f"{test['parameters']:,} parameters.",
    ]
    usage = NOT_RELEASED
    if verdict["shipped"] == SHIPPED:
        off = recorded_difference(run, RERANKER_FOLDER)
        usage = USAGE_NOTE.format(folder=RERANKER_FOLDER, off=off, tenant=cell(verdict["tenant"]))
    model_licence = licence(initial.settings)
    sections = [
        *("## Limits", CAVEATS),
        *("## How to use it", usage),
        *("## Settings that differ from the defaults", changed_settings(settings)),
        *("## Software", software(run), "## Licence", f"Of the initial model: `{cell(model_licence)}`."),
    ]
    front_matter = {"library_name": "sentence-transformers", "pipeline_tag": "text-ranking", "license": model_licence}
    return with_front_matter(document(head, _tables(tables), sections), front_matter, {}).encode()


def _fusion(weight: float | None) -> str:
    return "fused by rank (RRF)" if weight is None else f"fused by score with weight {weight:g} of the encoder"


def _tables(tables: Tables) -> Iterator[tuple[str, pa.Table, str]]:
    yield "Test", tables.sql(SCORES_SQL), SCORES_NOTE
    yield "Trials", tables.sql(TRIALS_SQL), "nDCG@10 on validation queries that share no positive with training."
    yield "Training history", tables.sql(TRAINING_LOG_SQL), ""
