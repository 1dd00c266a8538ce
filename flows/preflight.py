"""Checks of inputs, settings, servers and models before a job starts; all problems are reported at once.

Readers read the beginning of the inputs, each kind of judge or encoder reports what it lacks, and the output folder is
checked for other contents. `darklode doctor` uses the same checks of kinds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from darklode.flows import factories
from darklode.flows.error_messages import messages
from darklode.flows.executor import executor
from darklode.flows.mining_history import are_documents_read, days_read, history_of
from darklode.flows.prefect.progress import reporter
from darklode.flows.prefect.server import check_configured
from darklode.flows.prefect.sharding import check_runner
from darklode.flows.runs import folder_kind, output_run, read_run
from darklode.flows.source_checks import check_languages, check_not_swapped
from darklode.flows.sources import InputPreview
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.artifacts.store import explain_write_errors, s3_failure
from darklode.pipeline.base.errors import DarklodeError, InputError, MissingPart, NotReady, NotWritable
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.base.memory.parts import PartFiles
from darklode.pipeline.ingest.files import list_files
from darklode.pipeline.ingest.input_check import (
    check_documents,
    check_judgments,
    check_log,
    check_queries,
    first_queries,
)
from darklode.pipeline.ingest.log_partitions import partitions_of, remove_marker_files
from darklode.pipeline.ingest.sources.address import address_kind, check_source
from darklode.pipeline.judge.factory import configure_judge, members
from darklode.pipeline.judge.human_labels import read_labels
from darklode.pipeline.mine.admission.decisions import DecisionRequest
from darklode.pipeline.mine.term_weighting.kinds import TermWeighterKind
from darklode.pipeline.prepare.split import GENERATED_TABLE
from darklode.pipeline.report.experiment_trackers import check_trackers
from darklode.pipeline.report.funnel import FUNNEL_STAGE
from darklode.pipeline.retrieve.retrievers.kinds import LiveKind
from darklode.pipeline.retrieve.retrievers.live import LiveBuilder
from darklode.schemas.kinds import KindSection
from darklode.schemas.run_inputs import BenchmarkInputs, MinedInputs
from darklode.schemas.settings import CacheSettings, Settings
from darklode.schemas.tables import QUERIES

NO_DECISIONS = DecisionRequest()

Check = Callable[[], Iterable[str]]
"""Returns notes, one sentence each; raises a DarklodeError for what would stop the command."""

CACHED_ANSWER_FOLDERS = (("verdicts", "judge"), ("embeddings", "encoder"), ("plans", "planner"))
"""Folders of the cache with answers of remote models, and what an owner is called there."""


@dataclass(frozen=True)
class CheckResults:
    """Results of the checks.

    Attributes:
        errors: problems that would stop the command.
        notes: warnings that would not.
    """

    errors: Sequence[DarklodeError]
    notes: Sequence[str]

    def raise_errors(self) -> None:
        """Raise if there is any error.

        Raises:
            DarklodeError: the only error, or `NotReady` with all of them.
        """
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise NotReady(self.errors)


def run_checks(checks: Sequence[Check]) -> CheckResults:
    """Run all checks in threads, since some wait for servers; results keep the order of the checks."""
    with ThreadPoolExecutor(max(1, len(checks))) as pool:
        outcomes = list(pool.map(_outcome, checks))
    errors = [result for outcome in outcomes for result in outcome if isinstance(result, DarklodeError)]
    notes = [result for outcome in outcomes for result in outcome if isinstance(result, str)]
    return CheckResults(list({str(error): error for error in errors}.values()), list(dict.fromkeys(notes)))


def check_flow(checks: Callable[[], Sequence[Check]]) -> None:
    """Run the checks of a flow, unless the command that started it already has.

    Args:
        checks: makes the checks; called only if they are needed.

    Raises:
        DarklodeError: a check failed.
    """
    if not executor().needs_preflight:
        return
    results = run_checks(checks())
    for note in results.notes:
        reporter().say(note)
    results.raise_errors()


def _outcome(check: Check) -> list[str | DarklodeError]:
    try:
        return list(check())
    except DarklodeError as error:
        return [error]
    except OSError as error:  # must not hide the results of other checks
        return [MissingPart(sentence) if (sentence := s3_failure(error)) else InputError(*messages(error))]


def path_checks(inputs: Sequence[str], out: str, *, mined: bool) -> list[Check]:
    """Checks of paths, which need no valid settings."""
    return [*(lambda path=path: _check_readable(path) for path in inputs), lambda: _check_output(out, mined=mined)]


def build_checks(docs: str, queries: str, out: str, settings: Settings, qrels: str | None = None) -> list[Check]:
    """Checks of `build-benchmark`."""
    human = settings.judge.human_labels
    docs_preview, queries_preview = InputPreview("docs", docs, settings), InputPreview("queries", queries, settings)
    return [
        lambda: check_not_swapped(docs_preview, queries_preview, settings.ingest),
        lambda: docs_preview.check(check_documents, settings.ingest),
        lambda: queries_preview.check(check_queries, settings.ingest),
        lambda: queries_preview.check(check_languages, settings),
        lambda: _check_output(out, mined=False),
        lambda: InputPreview("qrels", qrels, settings).check(check_judgments, settings.ingest) if qrels else [],
        lambda: _check_labels(human, settings.ingest.tenant) if human else [],
        lambda: _check_generated(settings.split.generated_queries),
        lambda: _check_parts(out, settings, builders(settings)),
        lambda: queries_preview.check(_check_engines, out, settings),
        *_common_checks(out, settings),
    ]


def mining_checks(
    logs: str,
    docs: str,
    out: str,
    settings: Settings,
    dates: Collection[date] | None = None,
    decisions: DecisionRequest = NO_DECISIONS,
) -> list[Check]:
    """Checks of `mine-logs`; that the log has the dates is required only for a new run."""
    run = Run(out)
    log_preview, docs_preview = InputPreview("logs", logs, settings), InputPreview("docs", docs, settings)
    required = None if folder_kind(run) or log_preview.is_fetched else dates
    return [
        lambda: [] if log_preview.is_fetched else _check_decisions(logs, out, settings, dates, decisions),
        lambda: log_preview.check(
            check_log,
            settings.logs,
            settings.ingest,
            required,
            {} if log_preview.is_fetched else days_read(run, settings),
        ),
        lambda: (
            []
            if not docs_preview.is_fetched and are_documents_read(run, docs, settings)
            else docs_preview.check(check_documents, settings.ingest)
        ),
        lambda: _check_output(out, mined=True),
        lambda: _check_parts(out, settings, mining_parts(settings)),
        *_common_checks(out, settings),
    ]


def evaluation_checks(out: str, values: Mapping[str, Any]) -> list[Check]:
    """Checks of `evaluate-systems`.

    Args:
        out: the run's folder or `s3://` prefix.
        values: overrides of the run's settings, as nested sections.

    Raises:
        ArtifactError: there is no run.
        SettingsError: as for `load_settings`.
    """
    record = read_run(Run(out))
    settings, mined = record.with_overrides(values), record.is_mined
    files = [*settings.evaluate.run_files, *filter(None, [settings.evaluate.human_labels])]
    return [
        lambda: [note for file in files for note in _check_readable(file)],
        lambda: _check_parts(
            out, settings, factories.retriever_settings(factories.named_systems(settings, mined=mined))
        ),
        lambda: check_trackers(settings.evaluate.report_to),
        *_common_checks(out, settings),
    ]


def _common_checks(out: str, settings: Settings) -> list[Check]:
    return [lambda: _check_prefect(out), lambda: check_runner(settings.runner), lambda: _check_cache(settings.cache)]


def _check_prefect(out: str) -> list[str]:
    """Check that a configured Prefect server answers; a complete run may not need it."""
    try:
        return check_configured()
    except MissingPart as error:
        if _is_complete(out):
            return [f"{error}; not needed if every stage is up to date"]
        raise


def _is_complete(out: str) -> bool:
    return Run(out).manifest(FUNNEL_STAGE) is not None


def builders(settings: Settings) -> dict[str, KindSection]:
    """Judges and retrievers of a build, by a readable name."""
    judges = {f"judge {judge.kind}": judge for judge in members(configure_judge(settings))}
    return judges | factories.retriever_settings(factories.retrievers(settings))


def mining_parts(settings: Settings) -> dict[str, KindSection]:
    """Term weighter, rankers and judges of a mining run, by a readable name; the judge only if it verifies pairs."""
    parts: dict[str, KindSection] = {"term weighting": as_kind(settings.term_weighting, TermWeighterKind)} | rankers(
        settings
    )
    retrievers = factories.ranking_retrievers(settings)  # an unknown name is an error, even if nothing is ranked
    if settings.relevance.ranker != "none":
        parts |= factories.retriever_settings(retrievers)
    if factories.verifies(settings):
        parts |= {f"judge {judge.kind}": judge for judge in members(configure_judge(settings))}
    return parts


def rankers(settings: Settings) -> dict[str, KindSection]:
    """Rankers of documents for a log's queries, by a readable name; empty if `relevance.ranker` is none."""
    return {f"ranker {judge.kind}": judge for judge in factories.ranking_judges(settings)}


def _check_engines(queries: str, out: str, settings: Settings) -> list[str]:
    """Send the first query to each search engine; a problem is only a note if the run is complete.

    Engines whose requests depend on the tenant are left out: the tenant is known only when the queries are read.
    """
    retrievers = factories.with_members(factories.retrievers(settings))
    engines = [builder for builder in retrievers.values() if isinstance(builder, LiveBuilder)]
    engines = [builder for builder in engines if not builder.engine.uses_tenant and not builder.engine.missing()]
    texts = first_queries(queries, settings.ingest) if engines else []
    notes = []
    for builder in engines if len(texts) else ():
        try:
            notes += builder.try_query(texts[0].as_py(), settings.ingest.tenant)
        except DarklodeError as error:
            if not _is_complete(out):
                raise
            notes.append(f"{error}; not needed if every stage is up to date")
    return notes


def _check_parts(out: str, settings: Settings, parts: Mapping[str, KindSection]) -> Iterator[str]:
    """Check what each part lacks; a problem that several parts share is reported once.

    A remote model that does not answer is only a note if the run is complete or the cache has its answers: no call may
    be needed.
    """
    names: dict[tuple[str, bool], list[str]] = {}
    for name, part in parts.items():
        for problem in part.missing():
            is_remote = hasattr(part, "base_url") or isinstance(part, LiveKind)
            optional = is_remote and (_is_complete(out) or _is_cached(part, settings.cache))
            names.setdefault((problem, optional), []).append(name)
    errors = []
    for (problem, optional), part_names in names.items():
        sentence = f"{', '.join(part_names)}: {problem}"
        if optional:
            yield f"{sentence}; cached answers do not need it"
        else:
            errors.append(sentence)
    if errors:
        raise MissingPart(*errors)


def _is_cached(part: KindSection, cache: CacheSettings) -> bool:
    """Whether the cache has any answer of a remote model."""
    model = getattr(part, "model", "")
    if not model:
        return False
    stores = [(PartFiles(cache.root, top, owner, ()), f"{owner}_id") for top, owner in CACHED_ANSWER_FOLDERS]
    return any(model in str(record[name]) for store, name in stores for record in store.records())


def _check_decisions(
    logs: str, out: str, settings: Settings, dates: Collection[date] | None, decisions: DecisionRequest
) -> list[str]:
    """Check that accepted and discarded days were read, or will be."""
    if decisions == NO_DECISIONS:
        return []
    history = history_of(Run(out), settings)
    sources = history.sources()
    partitions = partitions_of(remove_marker_files(list_files(logs, remote=True)), settings.logs.format)
    new = [partition for partition in partitions.values() if dates is None or partition.date in dates]
    # the days of a new partition without a date are unknown until the stage reads and checks it
    if all(partition.date or partition.name in sources for partition in new):
        marks = history.marks() if Run(out).manifests() else {}
        list(decisions.decisions({**marks, **{partition.name: "" for partition in new if partition.date}}))
    return []


def _check_output(out: str, *, mined: bool) -> list[str]:
    run = output_run(out, MinedInputs if mined else BenchmarkInputs)
    if run.store.local is not None:
        _require_writable(run.store.local, "--out")
    return []


def _check_cache(cache: CacheSettings) -> list[str]:
    store = PartFiles(cache.root, "verdicts", "judge", ()).store
    if store.local is not None:
        _require_writable(store.local, "cache.root")
    return []


def _require_writable(folder: Path, option: str) -> None:
    """Check that files can be created below a folder, which may not exist yet.

    Args:
        folder: the folder.
        option: option or setting that named it.

    Raises:
        NotWritable: they cannot.
    """
    try:
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        with explain_write_errors(existing), tempfile.TemporaryFile(dir=existing):
            pass
    except NotWritable as error:
        raise NotWritable(f"{option} {folder}: {error}") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise NotWritable(f"{option} {folder} cannot be created ({reason}); choose another folder") from error


def _check_readable(path: str) -> list[str]:
    if address_kind(path) in {None, "objects"}:
        list_files(path, remote=True)
    else:
        check_source(path)
    return []


def _check_generated(folder: str | None) -> list[str]:
    if folder:
        Run(folder).tables(QUERIES.name, GENERATED_TABLE)
    return []


def _check_labels(file: str, tenant: str) -> list[str]:
    read_labels(Path(file).expanduser(), tenant)
    return []
