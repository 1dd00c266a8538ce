"""The card of an adapted encoder: training data, results, and why it is released or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import yaml

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.card import cell, changed_settings, document, name_of, software, with_front_matter
from darklode.pipeline.base.models.local import locate
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.fit.stage import TRAIN_STAGE
from darklode.pipeline.train.release.adapter import ENCODER_FOLDER
from darklode.pipeline.train.release.evaluation import ADAPTER_TEST_STAGE
from darklode.pipeline.train.release.folder import recorded_difference
from darklode.pipeline.train.release.headroom import HEADROOM_STAGE
from darklode.pipeline.train.release.verdict import format_comparisons, format_selection, format_too_few, read_verdict
from darklode.schemas.adaptation_tables import TERM_VECTORS
from darklode.schemas.pooling import LocalModel
from darklode.schemas.settings import Settings

PARTS_NOTE = """\
`own positive`: test queries whose clusters and positives are not in training. Only they decide; on `shared positive`
an encoder may have memorized the answer. `detectable` is the smallest true difference detected with 80 % power;
`p_holm` is corrected for all rows of a part."""

CAVEATS = """\
The labels are those of the runs: if a judge gave them, a gain is a gain according to that judge. Unjudged texts count
as not relevant; `Judged@10` is the share of the top ten with a label. Documents and their index are unchanged: use this
encoder for queries only, and only with the index of its base."""

UNJUDGED_NOTE = """\
`labelled` of `places` had a label before. Unlabelled texts of all systems were judged by the runs' own judge, by rank
and within a budget: `judged` is their number, `relevant` of them are relevant."""

HEADROOM_NOTE = """\
On the queries used for model selection, before training. A label-free system has at most one `setting`, selected on the
same queries."""

USAGE_NOTE = """\
```python
from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer("{folder}").encode(["a query"])   # document vectors are unchanged
```
Its vectors differ from those in training by at most {off:.1e} in any dimension."""

SCORES_SQL = """
    SELECT part, system, measure, value, low, high, ceiling, queries FROM evaluation WHERE tenant IS NULL
    ORDER BY part, measure, value DESC, system
"""
DIFFERENCES_SQL = """
    SELECT part, system, other AS minus, measure, difference, low, high, p_holm, detectable, wins, losses, queries
    FROM evaluation_pairs
    WHERE tenant IS NULL AND (measure = 'nDCG@10' OR (system = 'adapted' AND other = 'base'))
    ORDER BY part, measure, system <> 'adapted' OR other <> 'base', difference DESC, system, other
"""
TRAINING_DATA_SQL = """
    SELECT split, count(*) AS queries, count(DISTINCT "group") AS clusters,
           count(*) FILTER (shares_positive) AS share_a_positive
    FROM adaptation_queries GROUP BY split ORDER BY split
"""
TRIALS_SQL = "SELECT setting, share, step, validation, stopped FROM adaptation_trials ORDER BY trial, share"
TRAINING_LOG_SQL = """
    SELECT setting, l.step, loss, l.validation, replaced, judged, short, spread
    FROM training_log l JOIN (SELECT DISTINCT trial, setting FROM adaptation_trials) USING (trial)
    ORDER BY trial, l.step
"""


def card(run: Run, settings: Settings, encoder: SentenceTransformersSettings, sources: list[str]) -> bytes:
    """The card in Markdown.

    Args:
        run: a run with complete stages and the saved folder.
        settings: the settings that the run used.
        encoder: the base encoder.
        sources: the runs it was trained on, as given.
    """
    tables = run.tables()
    row, method = read_verdict(tables), settings.adapt.method
    head = [
        f"# {cell(name_of(run, settings))}",
        f"**{cell(row['shipped'])}**: {cell(row['reason'])}.",
        *(f"{cell(sentence)}." for sentence in format_comparisons(row)),
        *([f"> **Warning:** {cell(row['label_bias'])}."] if row["label_bias"] else []),
        f"Base: `{cell(encoder.encoder_id())}`. Method: {method}, {_count_parameters(run):,} parameters, selected "
        f"{format_selection(row['validation_queries'], row['folds'])}: {_setting(method)} {cell(row['setting'])}, "
        f"{row['share']:g} of the way. The test queries were ranked {_times_tested(run)}.",
        *format_terms(run, tables),
        f"Trained on: {', '.join(f'`{cell(source)}`' for source in sources)}.",
    ]
    last = [
        *("## Limits", CAVEATS),
        *("## How to use it", USAGE_NOTE.format(folder=ENCODER_FOLDER, off=recorded_difference(run))),
        *("## Settings that differ from the defaults", changed_settings(settings)),
        *("## Software", software(run), "## Licence", f"Of the base: `{cell(licence(encoder))}`."),
    ]
    front = {
        "library_name": "sentence-transformers",
        "license": licence(encoder),
    }
    return with_front_matter(document(head, _tables(tables), last), front, {}).encode()


def _tables(tables: Tables) -> Iterator[tuple[str, pa.Table, str]]:
    yield "Differences", tables.sql(DIFFERENCES_SQL), PARTS_NOTE
    yield "Scores", tables.sql(SCORES_SQL), "`ceiling` is the score of a perfect ranking."
    yield "Labels in the top ten", tables.read("unjudged_results"), UNJUDGED_NOTE
    yield "Training data", tables.sql(TRAINING_DATA_SQL), ""
    yield "Headroom", tables.read("headroom"), HEADROOM_NOTE
    yield (
        "Trials",
        tables.sql(TRIALS_SQL),
        "`share` of the way from the base, which is 0; nDCG@10 on the validation queries.",
    )
    yield "Training history", tables.sql(TRAINING_LOG_SQL), ""


def _setting(method: str) -> str:
    return {"closed_form": "ridge", "whitened": "power"}.get(method, "learning rate")


def format_terms(run: Run, tables: Tables) -> list[str]:
    """What the released encoder's term vectors are, as at most one sentence."""
    from darklode.pipeline.train.fit.stage import load_best_trial
    from darklode.pipeline.train.fit.term_start import TermStart

    sizes = run.store.sizes(ENCODER_FOLDER, recursive=True)
    table_size = sum(size for name, size in sizes.items() if "_WordEmbeddings/" in name)
    mix = TermStart.from_weights(load_best_trial(tables)[1])
    if mix is None or not table_size:
        return []
    return [
        f"Query vectors are mixed with term vectors: {tables.rows(TERM_VECTORS.name):,} tokens, share {mix.share:g}, "
        f"after whitening with power {mix.power:g}. Their table takes {table_size / 1e6:,.0f} MB."
    ]


def _count_parameters(run: Run) -> int:
    """Number of trained parameters."""
    manifest = run.manifest(TRAIN_STAGE)
    assert manifest is not None
    return int(manifest.facts["parameters"])


def _times_tested(run: Run) -> str:
    manifest = run.manifest(ADAPTER_TEST_STAGE)
    times = manifest.facts["asked"] if manifest else 0
    return "once" if times == 1 else f"{times} times: choices made in between were made on the test"


def licence(encoder: LocalModel) -> str:
    """License from the model's own card."""
    model = locate(encoder)
    page = model.folder / "README.md" if model else None
    if page is None or not page.is_file():
        return "unknown"
    parts = page.read_text(encoding="utf-8", errors="replace").split("---\n", 2)
    try:
        front_matter: Any = yaml.safe_load(parts[1]) if len(parts) > 1 and not parts[0].strip() else None
    except yaml.YAMLError:
        return "unknown"
    return str(front_matter.get("license", "unknown")) if isinstance(front_matter, Mapping) else "unknown"


def format_headroom(run: Run) -> str:
    """The headroom in one sentence."""
    manifest = run.manifest(HEADROOM_STAGE)
    assert manifest is not None
    facts, sides = manifest.facts, manifest.facts["sides"]
    counts = ", ".join(f"{side['queries']:,} {name}" for name, side in sides.items())
    clusters = sides.get("train", {}).get("clusters", 0)
    queries, own_clusters, least = facts["deciding"], sides.get("test", {}).get("own_clusters", 0), facts["detectable"]
    decides = f"{queries:,} test queries in {own_clusters:,} clusters decide: a lift of about"
    can = f"{decides} {least:.3f} or more is released 4 times of 5" if least else format_too_few(queries, own_clusters)
    return f"{counts}; {clusters:,} labelled train clusters. {can[0].upper()}{can[1:]}."
