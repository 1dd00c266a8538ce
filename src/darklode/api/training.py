"""Training of query encoders and rerankers, as functions."""

from __future__ import annotations

from typing import Any

from darklode.api.launching import Names, Overrides, changes_of, job_result, names_of, text_of
from darklode.api.progress import BarReporter
from darklode.api.views import JobResult, Location, url_of
from darklode.flows.launch import launch
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import CommandLineError, NoLift
from darklode.schemas.adaptation import MIN_SHARE, SAMPLE_TEXTS
from darklode.schemas.reranker import CANDIDATES
from darklode.schemas.setting_names import merge


def adapt(
    run: Names,
    *,
    encoder: str,
    out: Location,
    qrels: Location | None = None,
    method: str | None = None,
    warm_start: Location | None = None,
    tenants: Names = (),
    pool_tenants: bool = False,
    dry_run: bool = False,
    preset: str | None = None,
    config: Location | None = None,
    settings: Overrides | None = None,
    silent: bool = False,
) -> JobResult:
    """Train a query encoder on labels for a fixed index, as `darklode adapt` does.

    Args:
        run: benchmark or mined runs that provide the training data.
        encoder: encoder from the settings, or a sentence-transformers model (name or folder).
        out: folder or `s3://` prefix of the adapter.
        qrels: relevance judgments of the run's queries, in the formats of `build`.
        method: auto (default), linear, ffn, closed_form, whitened, lora, top_n or full.
        warm_start: initialize from this adapter, or from a registry's live adapter.
        tenants: train one adapter for each of these tenants; `all`: for every tenant.
        pool_tenants: also train one head on the rows of all these tenants, for those that are too small.
        dry_run: report the possible gain and stop before training.
        preset: preset whose adapt section overrides the first run's.
        config: YAML file with settings.
        settings: overrides of the first run's settings.
        silent: show no progress.

    Returns:
        The adapter's folder. `passed` is False if no significant gain was measured: the base encoder is released then.
        Figures: `gain`; `adapted_tenants` with `tenants`; `headroom` with `dry_run`.

    Raises:
        DarklodeError: as the command line would print it.
    """
    from darklode.flows.commands.adapt import ALL_TENANTS, summarize
    from darklode.flows.config import preset_values
    from darklode.flows.jobs.adapt_encoder import adapt_encoder
    from darklode.flows.jobs.adapt_tenants import adapt_tenants, format_summary
    from darklode.pipeline.train.release.verdict import require_lift

    if tenants and (dry_run or qrels):
        raise CommandLineError("dry_run and qrels support one tenant: set adapt.tenant instead of `tenants`")
    if pool_tenants and not tenants:
        raise CommandLineError("pool_tenants needs `tenants`")
    base = {"adapt": preset_values(preset).get("adapt", {})} if preset else {}
    changes = merge(base, changes_of(config, settings, {"adapt": {"method": method}} if method else {}))
    names = [] if tenants == ALL_TENANTS else names_of(tenants)
    inputs = (names_of(run), encoder, url_of(out))
    reporter = BarReporter(silent=silent)
    try:
        if tenants:
            launch(adapt_tenants, reporter, *inputs, names, changes, text_of(warm_start), pool_tenants=pool_tenants)
        else:
            launch(adapt_encoder, reporter, *inputs, changes, dry_run, text_of(warm_start), qrels=text_of(qrels))
        decide = format_summary if tenants else require_lift
        verdict, passed = (reporter.sentences[-1], None) if dry_run else (decide(Run(url_of(out))), True)
    except NoLift as error:
        verdict, passed = str(error), False
    if dry_run:
        return job_result(out, reporter, verdict=verdict)
    if tenants:
        reporter.tables = {"adapted_tenants": Run(url_of(out)).tables("adapted_tenants").read("adapted_tenants")}
    return job_result(out, reporter, None if tenants else summarize, verdict=verdict, passed=passed)


def model_swap(
    run: Location,
    *,
    from_: str,
    onto: str,
    out: Location,
    min_share: float = MIN_SHARE,
    sample: int = SAMPLE_TEXTS,
    queries: Names = (),
    config: Location | None = None,
    settings: Overrides | None = None,
    silent: bool = False,
) -> JobResult:
    """Change the query encoder without re-embedding the index, as `darklode adapt model-swap` does.

    Args:
        run: benchmark or mined run with the index's texts and its queries.
        from_: new query encoder: from the settings, or a sentence-transformers model (name or folder).
        onto: encoder of the existing index, in the same forms.
        out: folder or `s3://` prefix of the mapped encoder.
        min_share: share of re-embedding's first ten results that mapped queries must find to be released.
        sample: maximum number of texts that the new encoder embeds.
        queries: files of more unlabelled queries.
        config: YAML file with settings.
        settings: overrides of the run's settings.
        silent: show no progress.

    Returns:
        The folder. `passed` is False if re-embedding is needed. Figures: `agreement`, `quality` and `partial`.

    Raises:
        DarklodeError: as the command line would print it.
    """
    from darklode.flows.commands.model_swap import summarize
    from darklode.flows.jobs.swap_model import swap_model
    from darklode.pipeline.model_swap.verdict import require_share

    changes, reporter = changes_of(config, settings), BarReporter(silent=silent)
    options: dict[str, Any] = {
        "min_share": min_share,
        "sample": sample,
        "queries": names_of(queries) if queries else [],
    }
    try:
        launch(swap_model, reporter, url_of(run), from_, onto, url_of(out), changes, **options)
        verdict, passed = require_share(Run(url_of(out))), True
    except NoLift as error:
        verdict, passed = str(error), False
    return job_result(out, reporter, summarize, verdict=verdict, passed=passed)


def train_reranker(
    run: Names,
    *,
    base: str,
    out: Location,
    encoder: str | None = None,
    candidates: int = CANDIDATES,
    control: bool = False,
    config: Location | None = None,
    settings: Overrides | None = None,
    silent: bool = False,
) -> JobResult:
    """Train a reranker (cross-encoder) on labels, as `darklode train-reranker` does.

    Args:
        run: benchmark or mined runs that provide the training data.
        base: initial model: a cross-encoder, or a sentence-transformers encoder, which gets a new head.
        out: folder or `s3://` prefix of the reranker.
        encoder: encoder that finds the candidates beside BM25; default: `base`.
        candidates: candidates per query that are ordered.
        control: also train with shuffled labels.
        config: YAML file with settings.
        settings: overrides of the first run's settings.
        silent: show no progress.

    Returns:
        The reranker's folder. `passed` is False if no gain over the candidates' order was shown: no reranker is
        released then. Figure: `scores`.

    Raises:
        DarklodeError: as the command line would print it.
    """
    from darklode.flows.jobs.train_reranker import train_reranker as body
    from darklode.pipeline.reranker.verdict import SCORES_SQL, require_gain

    reporter = BarReporter(silent=silent)
    inputs = (names_of(run), base, url_of(out), changes_of(config, settings, {}), encoder, candidates, control)
    try:
        launch(body, reporter, *inputs)
        verdict, passed = require_gain(Run(url_of(out))), True
    except NoLift as error:
        verdict, passed = str(error), False
    reporter.tables = {"scores": Run(url_of(out)).tables().sql(SCORES_SQL)}
    return job_result(out, reporter, verdict=verdict, passed=passed)
