"""Jobs that make runs and indexes, as functions: arguments are the options of the commands, `settings` is `--set`."""

from __future__ import annotations

from datetime import date as Date  # noqa: N812 (`date` is an option)
from typing import Any

from darklode.api.launching import (
    Names,
    Overrides,
    changes_of,
    job_result,
    merge_nested,
    names_of,
    output_folder,
    run_job,
    text_of,
)
from darklode.api.views import JobResult, Location, url_of
from darklode.pipeline.base.errors import CommandLineError


def demo(out: Location = "darklode-demo", *, silent: bool = False) -> JobResult:
    """Build a benchmark from the sample documents and queries bundled with Darklode.

    Args:
        out: the run's folder.
        silent: show no progress.
    """
    from darklode.flows.commands.demo import sample_folder

    sample = sample_folder()
    return build(sample, sample, out, silent=silent)


def build(
    docs: Location | None = None,
    queries: Location | None = None,
    out: Location | None = None,
    *,
    qrels: Location | None = None,
    preset: str | None = None,
    config: Location | None = None,
    settings: Overrides | None = None,
    keep_all_queries: bool = False,
    estimate: bool = False,
    human: Location | None = None,
    silent: bool = False,
) -> JobResult:
    """Build a judged benchmark and triplets, as `darklode build` does; a second call redoes only what changed.

    Args:
        docs: folder or file of documents; None: `paths.docs` of `config`.
        queries: query log; None: `paths.queries` of `config`.
        out: the run's folder or `s3://` prefix; None: `paths.out` of `config`.
        qrels: relevance judgments that you have; no judge runs then, unless you name one.
        preset: base of the settings.
        config: YAML file with settings and paths.
        settings: overrides of both.
        keep_all_queries: keep every query in cleaning.
        estimate: stop before judging; the figures estimate pairs, tokens, time and cost from 50 calls.
        human: CSV file of human labels to compare the judge with.
        silent: show no progress.

    Raises:
        DarklodeError: as the command line would print it; subclasses tell kinds of errors apart.
    """
    from darklode.flows.jobs.build_benchmark import build_benchmark

    options: dict[str, Any] = {"clean.keep_all": True} if keep_all_queries else {}
    options |= {"judge.human_labels": url_of(human)} if human is not None else {}
    target = output_folder("out", out, config, preset)
    texts = (text_of(docs), text_of(queries), target, preset, merge_nested(settings or {}, options), estimate)
    reporter = run_job(build_benchmark, silent, *texts, qrels=text_of(qrels), config=text_of(config))
    return job_result(target, reporter)


def mine(
    logs: Location | None = None,
    docs: Location | None = None,
    out: Location | None = None,
    *,
    date: Date | None = None,
    from_: Date | None = None,
    to: Date | None = None,
    test_from: Date | None = None,
    refresh: bool = False,
    accept_day: Names = (),
    discard_day: Names = (),
    reason: str | None = None,
    preset: str | None = None,
    config: Location | None = None,
    settings: Overrides | None = None,
    report: bool = True,
    silent: bool = False,
) -> JobResult:
    """Mine search logs into triplets, as `darklode mine` does; a second call reads only new days.

    Args:
        logs: search logs; None: `paths.logs` of `config`.
        docs: documents; None: `paths.docs` of `config`.
        out: the run's folder or `s3://` prefix; None: `paths.mined` of `config`.
        date: read only this day; None: all new days. Days read before are kept.
        from_: first day to read (`--from`), together with `to`.
        to: last day to read.
        test_from: first day of the test data.
        refresh: fit term weights and click model again.
        accept_day: days held back to include, as 2026-03-11 or TENANT:2026-03-11.
        discard_day: days to leave out for good.
        reason: reason for these decisions, for the record.
        preset: base of the settings.
        config: YAML file with settings and paths.
        settings: overrides of both.
        report: write the report and the card's figures.
        silent: show no progress.

    Raises:
        HeldBack: a day of the log needs a decision; the run is complete without it.
        DarklodeError: as the command line would print it.
    """
    from darklode.flows.jobs.mine_logs import mine_logs

    if (date and (from_ or to)) or (from_ is None) != (to is None):
        raise CommandLineError("use either `date` for one day, or `from_` and `to` for a range")
    options = {"mining.test_from": test_from.isoformat()} if test_from else {}
    target = output_folder("mined", out, config, preset)
    values = {"preset": preset, "settings": merge_nested(settings or {}, options), "config": text_of(config)}
    days = {"first": date or from_, "last": date or to, "refresh": refresh, "report": report}
    decided = {"accept_days": names_of(accept_day), "discard_days": names_of(discard_day), "reason": reason}
    return job_result(
        target, run_job(mine_logs, silent, text_of(logs), text_of(docs), target, **days, **decided, **values)
    )


def generate(
    run: Location,
    *,
    out: Location,
    source: str | None = None,
    config: Location | None = None,
    settings: Overrides | None = None,
    silent: bool = False,
) -> JobResult:
    """Generate synthetic queries for a run's texts, as `darklode generate` does.

    Args:
        run: benchmark or mined run.
        out: folder or `s3://` prefix of the generated queries; `adapt` takes it like a run.
        source: generator: ict, t5 or llm.
        config: YAML file with settings.
        settings: overrides of the run's settings.
        silent: show no progress.

    Returns:
        The generated queries, with the figures `coverage` and `outcomes`.

    Raises:
        DarklodeError: as the command line would print it.
    """
    from darklode.flows.commands.generate import summarize
    from darklode.flows.jobs.generate_queries import generate_queries

    changes = changes_of(config, settings, {"generate": {"kind": source}} if source else {})
    return job_result(out, run_job(generate_queries, silent, url_of(run), url_of(out), changes), summarize)


def index(
    run: Location,
    *,
    encoder: str,
    out: Location,
    adapter: Location | None = None,
    tenant: str | None = None,
    tenants: Names = (),
    config: Location | None = None,
    settings: Overrides | None = None,
    silent: bool = False,
) -> JobResult:
    """Build a compressed vector index of a run's texts, as `darklode index` does.

    Args:
        run: benchmark or mined run, or a file of vectors.
        encoder: encoder from the settings, or a sentence-transformers model (name or folder).
        out: folder or `s3://` prefix of the index.
        adapter: output of `adapt`; recall is measured with its queries, too.
        tenant: tenant whose texts are indexed; None: the only one.
        tenants: several tenants in one index, or `all`; every search then names its tenant.
        config: YAML file with settings.
        settings: overrides of the run's settings.
        silent: show no progress.

    Returns:
        The index, with the figure `recall`.

    Raises:
        DarklodeError: as the command line would print it.
    """
    from darklode.flows.commands.index import summarize
    from darklode.flows.jobs.build_index import build_index

    several = ",".join(names_of(tenants)) if tenants else None
    inputs = (url_of(run), encoder, url_of(out), changes_of(config, settings), tenant, text_of(adapter), several)
    return job_result(out, run_job(build_index, silent, *inputs), summarize)
