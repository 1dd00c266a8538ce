"""The card of a distilled judge: comparison with its teacher, bands of a cascade, and how to use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.card import cell, changed_settings, document, name_of, software, with_front_matter
from darklode.pipeline.base.models.local import RERANKER_FOLDER
from darklode.pipeline.reranker.distil.comparison import cascade_choices
from darklode.pipeline.reranker.distil.evaluation import PREDICTIONS_STAGE, format_comparison, refusal
from darklode.pipeline.reranker.distil.folder import BANDS_SQL, SHOWN_BANDS_SQL
from darklode.pipeline.reranker.distil.sampling import DISTILLED_PAIRS_STAGE
from darklode.pipeline.train.release.card import licence
from darklode.pipeline.train.release.folder import recorded_difference

if TYPE_CHECKING:
    from darklode.pipeline.reranker.model import InitialReranker
    from darklode.schemas.settings import Settings

USAGE_NOTE = """\
In Darklode, for tenant `{tenant}` only:

```sh
darklode build … --set judge.kind=cross_encoder --set judge.model={url}
darklode build … --set judge.kind=cascade --set judge.small={url} --set judge.large.kind=llm …
```

In sentence-transformers, `CrossEncoder("{folder}").predict(pairs)` gives the calibrated probability; a pair is relevant
from {threshold:.2f} on. Scores differ from those in training by at most {off:.1e}."""

BANDS_NOTE = """\
If the small judge answers only what it is sure of, and the teacher the rest. `certainty` is the minimum probability of
its answer; `teacher_share` is the share of pairs that the teacher judges; `kappa` is with the teacher's labels. All on
test queries, calibrated on other ones."""

CHOICES_NOTE = """\
The band that each `judge.agreement` chooses. `teacher_share` and `kappa` with the teacher's labels are measured on
other test queries than those that chose it, so `kappa` may be below `agreement`."""

CAVEATS = """\
A teacher's errors are learned, too: agreement with the teacher is no agreement with people. The figures hold for
queries and texts like the run's; distil again when they change."""

HISTORY_SQL = "SELECT trial, step, loss, validation FROM reranker_log ORDER BY trial, step"


def card(run: Run, settings: Settings, initial: InitialReranker, source: str, teacher: list[str]) -> bytes:
    """Write the card in Markdown.

    Args:
        run: a run with complete stages and the saved folder.
        settings: the settings that the run used.
        initial: the model that training started from.
        source: the judged run, as given.
        teacher: the teacher's judge ids.
    """
    tables, manifests = run.tables(), run.manifests()
    facts, pairs = manifests[PREDICTIONS_STAGE.name].facts, manifests[DISTILLED_PAIRS_STAGE.name].facts
    record = run.store.read_object(f"{RERANKER_FOLDER}.json")
    reason = refusal(facts, None)
    verdict = f"It must not replace its teacher: {reason}." if reason else "It may replace its teacher."
    fitted = facts["calibrated on"] or "nothing, because its scores do not rise with the labels"
    head = [
        f"# {cell(name_of(run, settings))}",
        f"A judge for tenant `{cell(record['tenant'])}`, distilled from "
        f"{', '.join(f'`{cell(name)}`' for name in teacher)}.",
        f"{verdict} {format_comparison(facts)}",
        f"Initialized from `{cell(initial.identity['model'])}`, trained on the verdicts of `{cell(source)}` on "
        f"{pairs['train queries']:,} queries ({pairs['soft targets']} as soft targets); "
        f"{pairs['validation queries']:,} queries chose the weights, {pairs['test queries']:,} test them. "
        f"Calibrated on {fitted}.",
    ]
    if cost := format_cost(pairs["tokens per verdict"], settings.judge.prices()):
        head.append(cost)
    off = recorded_difference(run, RERANKER_FOLDER)
    usage = USAGE_NOTE.format(
        tenant=cell(record["tenant"]),
        url=run.store.url,
        folder=RERANKER_FOLDER,
        threshold=record["threshold"],
        off=off,
    )
    model_licence = licence(initial.settings)
    sections = [
        *("## Limits", CAVEATS),
        *("## How to use it", usage),
        *("## Settings that differ from the defaults", changed_settings(settings)),
        *("## Software", software(run), "## Licence", f"Of the initial model: `{cell(model_licence)}`."),
    ]
    front_matter = {"library_name": "sentence-transformers", "pipeline_tag": "text-ranking", "license": model_licence}
    return with_front_matter(document(head, _tables(tables), sections), front_matter, {}).encode()


def format_cost(tokens: Sequence[float | None], prices: tuple[float, float]) -> str:
    """What the teacher costs, as a sentence; empty without prices or token counts.

    Args:
        tokens: mean prompt and completion tokens of a verdict; None: unknown.
        prices: of a million prompt tokens and of a million completion tokens.
    """
    if not any(prices) or None in tokens:
        return ""
    cost = sum((count or 0) * price for count, price in zip(tokens, prices, strict=True)) / 1000
    return f"The teacher costs {cost:,.4g} per 1,000 pairs; a cascade costs its `teacher_share` of that."


def _tables(tables: Tables) -> Iterator[tuple[str, pa.Table, str]]:
    yield "Cascade by `judge.agreement`", cascade_choices(tables.sql(BANDS_SQL).to_pylist()), CHOICES_NOTE
    yield "Cascade", tables.sql(SHOWN_BANDS_SQL), BANDS_NOTE
    yield "Training history", tables.sql(HISTORY_SQL), "Validation: area under the ROC curve of the teacher's labels."
