"""What would stop a command after minutes or hours, found in its first seconds and said all at once.

Each check asks whoever will do the work: the readers read the beginning of the inputs, the kinds say what they lack,
the run's folder whether it takes a run. `darklode doctor` asks the same kinds.
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
from darklode.flows.prefect.server import check_configured
from darklode.flows.prefect.sharding import check_runner
from darklode.flows.runs import output_run, read_inputs, read_notes
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.artifacts.store import explain_write_errors, s3_failure
from darklode.pipeline.base.errors import DarklodeError, InputError, MissingPart, NotReady, NotWritable
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.base.memory.parts import PartFiles
from darklode.pipeline.ingest.files import list_files
from darklode.pipeline.ingest.input_check import check_documents, check_log, check_queries, first_queries
from darklode.pipeline.ingest.log_partitions import partitions_of, remove_marker_files
from darklode.pipeline.judge.factory import configure_judge, members
from darklode.pipeline.judge.human_labels import read_labels
from darklode.pipeline.mine.admission.decisions import DecisionRequest
from darklode.pipeline.mine.term_weighting.kinds import PlannerKind
from darklode.pipeline.prepare.language import languages_of
from darklode.pipeline.prepare.split import GENERATED
from darklode.pipeline.report.funnel import FUNNEL_STAGE
from darklode.pipeline.retrieve.retrievers.neural import NeuralBuilder
from darklode.schemas.kinds import KindSection
from darklode.schemas.settings import CacheSettings, IngestSettings, Settings
from darklode.schemas.tables import QUERIES

NOTHING_DECIDED = DecisionRequest()

Check = Callable[[], Iterable[str]]
"""Gives what is worth knowing, a sentence each; raises a DarklodeError for what would stop the command."""

KEPT = (("verdicts", "judge"), ("embeddings", "encoder"), ("plans", "planner"))
"""What the cache keeps of remote models, and what an owner is called there."""


@dataclass(frozen=True)
class CheckResults:
    """What the checks found.

    Attributes:
        errors: what would stop the command.
        notes: what would not, and is worth knowing.
    """

    errors: Sequence[DarklodeError]
    notes: Sequence[str]

    def insist(self) -> None:
        """Stop if anything is in the way.

        Raises:
            DarklodeError: it is; the error itself where it is the only one.
        """
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise NotReady(self.errors)


def run_checks(checks: Sequence[Check]) -> CheckResults:
    """Make all checks at once, in threads: some wait for servers. What they find stays in their order."""
    with ThreadPoolExecutor(max(1, len(checks))) as pool:
        outcomes = list(pool.map(_outcome, checks))
    errors = [error for outcome in outcomes for error in outcome if isinstance(error, DarklodeError)]
    notes = [error for outcome in outcomes for error in outcome if isinstance(error, str)]
    return CheckResults(list({str(error): error for error in errors}.values()), list(dict.fromkeys(notes)))


def _outcome(check: Check) -> list[str | DarklodeError]:
    try:
        return list(check())
    except DarklodeError as error:
        return [error]
    except OSError as error:  # it must not hide what the other checks find
        return [MissingPart(sentence) if (sentence := s3_failure(error)) else InputError(*messages(error))]


def of_paths(inputs: Sequence[str], out: str, *, mined: bool) -> list[Check]:
    """What can be said of paths alone, where settings are wrong, too."""
    return [*(lambda path=path: _readable(path) for path in inputs), lambda: _place(out, mined=mined)]


def of_build(docs: str, queries: str, out: str, settings: Settings) -> list[Check]:
    """What a build hangs on."""
    human = settings.judge.human
    return [
        lambda: _swapped_sources(docs, queries, settings.ingest),
        lambda: check_documents(docs, settings.ingest),
        lambda: check_queries(queries, settings.ingest),
        lambda: _languages(queries, settings),
        lambda: _place(out, mined=False),
        lambda: _labels(human, settings.ingest.tenant) if human else [],
        lambda: _check_generated(settings.split.generated),
        lambda: _parts(out, settings, builders(settings)),
        *_check_output(out, settings),
    ]


def _swapped_sources(docs: str, queries: str, settings: IngestSettings) -> list[str]:
    """See whether both inputs can be read only if each is taken for the other.

    Raises:
        InputError: so it is.
    """

    def reads(check: Check) -> bool:
        return not any(isinstance(outcome, DarklodeError) for outcome in _outcome(check))

    as_given = reads(lambda: check_documents(docs, settings)) and reads(lambda: check_queries(queries, settings))
    if as_given or not (
        reads(lambda: check_documents(queries, settings)) and reads(lambda: check_queries(docs, settings))
    ):
        return []
    raise InputError(f"--docs and --queries look swapped: {queries} reads as documents, {docs} as queries")


def of_mine(
    logs: str,
    docs: str,
    out: str,
    settings: Settings,
    dates: Collection[date] | None = None,
    wish: DecisionRequest = NOTHING_DECIDED,
) -> list[Check]:
    """What a night of mining hangs on; which days are there to be read is only asked of a run that begins."""
    return [
        lambda: _check_decisions(logs, out, settings, dates, wish),
        lambda: check_log(logs, settings.logs, settings.ingest, None if _has_started(out) else dates, {}),
        lambda: check_documents(docs, settings.ingest),
        lambda: _place(out, mined=True),
        lambda: _parts(out, settings, mining_parts(settings)),
        *_check_output(out, settings),
    ]


def of_evaluation(out: str, values: Mapping[str, Any]) -> list[Check]:
    """What an evaluation hangs on.

    Args:
        out: the run's folder or `s3://` prefix.
        values: what differs from the run's own settings, as nested sections.

    Raises:
        ArtifactError: there is no run.
        SettingsError: as for `load_settings`.
    """
    made = read_inputs(Run(out))
    settings, mined = made.with_overrides(values), made.is_mined
    files = [*settings.evaluate.run_files, *([settings.evaluate.labels] if settings.evaluate.labels else [])]
    return [
        lambda: [note for file in files for note in _readable(file)],
        lambda: _parts(out, settings, _check_retrievers(factories.named_systems(settings, mined=mined))),
        *_check_output(out, settings),
    ]


def _languages(queries: str, settings: Settings) -> Iterator[str]:
    """The languages that many queries are in and that cleaning drops."""
    languages = settings.clean.languages
    if settings.clean.keep_all or not languages:
        return
    shares = languages_of(first_queries(queries, settings.ingest))
    dropped = {language: share for language, share in shares.items() if language not in languages}
    if dropped:
        looks = ", ".join(f"{share:.0%} {language}" for language, share in dropped.items())
        proposed = language_setting([*(name for name in languages if name in shares), *dropped])
        yield (
            f"{queries}: the language of the queries looks like {looks}, and clean.language keeps "
            f"{', '.join(languages)} alone; to keep those too: --set clean.language={proposed}, or null for "
            "every language"
        )


def language_setting(languages: Sequence[str]) -> str:
    """The value of `clean.language` that keeps some languages, as `--set` takes it."""
    return languages[0] if len(languages) == 1 else f"[{', '.join(languages)}]"


def _check_output(out: str, settings: Settings) -> list[Check]:
    return [lambda: _prefect(out), lambda: check_runner(settings.runner), lambda: _cache(settings.cache)]


def _prefect(out: str) -> list[str]:
    """See that a configured server answers; a run that is complete may need none."""
    try:
        return check_configured()
    except MissingPart as error:
        if _complete(out):
            return [f"{error}; what stands needs none"]
        raise


def _complete(out: str) -> bool:
    return Run(out).manifest(FUNNEL_STAGE) is not None


def builders(settings: Settings) -> dict[str, KindSection]:
    """Who works for a build, by what a person calls them: judges and retrievers."""
    judges = {f"judge {judge.kind}": judge for judge in members(configure_judge(settings))}
    return judges | _check_retrievers(factories.retrievers(settings))


def mining_parts(settings: Settings) -> dict[str, KindSection]:
    """Who works for a night of mining: the planner, who ranks, and the judge where it looks at pairs."""
    parts: dict[str, KindSection] = {"planner": as_kind(settings.planner, PlannerKind)} | rankers(settings)
    retriever_names = factories.ranking_retrievers(settings)  # a name that is none is wrong, also where nobody ranks
    if settings.relevance.ranker != "none":
        parts |= _check_retrievers(retriever_names)
    if factories.verifies(settings):
        parts |= {f"judge {judge.kind}": judge for judge in members(configure_judge(settings))}
    return parts


def rankers(settings: Settings) -> dict[str, KindSection]:
    """Who ranks documents for a log's queries, if anybody does."""
    return {f"ranker {judge.kind}": judge for judge in factories.ranking_judges(settings)}


def _check_retrievers(builders: Mapping[str, factories.Builder]) -> dict[str, KindSection]:
    return {
        name: builder.encoder if isinstance(builder, NeuralBuilder) else builder for name, builder in builders.items()
    }


def _parts(out: str, settings: Settings, parts: Mapping[str, KindSection]) -> Iterator[str]:
    """What each part lacks here; a phrase that holds for several is said once.

    A remote model that does not answer is no error where its answers are kept, here or in the cache: they may be all
    that is asked for.
    """
    names: dict[tuple[str, bool], list[str]] = {}
    for name, part in parts.items():
        for phrase in part.missing():
            spared = hasattr(part, "base_url") and (_complete(out) or _is_cached(part, settings.cache))
            names.setdefault((phrase, spared), []).append(name)
    errors = []
    for (phrase, spared), lacking in names.items():
        missing_text = f"{', '.join(lacking)}: {phrase}"
        if spared:
            yield f"{missing_text}; answers that were kept need none"
        else:
            errors.append(missing_text)
    if errors:
        raise MissingPart(*errors)


def _is_cached(part: KindSection, cache: CacheSettings) -> bool:
    """Whether anything is kept of what a remote model has said."""
    model = getattr(part, "model", "")
    if not model:
        return False
    stores = [(PartFiles(cache.root, top, owner, ()), f"{owner}_id") for top, owner in KEPT]
    return any(model in str(record[name]) for store, name in stores for record in store.records())


def _check_decisions(
    logs: str, out: str, settings: Settings, dates: Collection[date] | None, wish: DecisionRequest
) -> list[str]:
    """See that the days that somebody accepts or discards are read already, or about to be."""
    if wish == NOTHING_DECIDED:
        return []
    from darklode.flows.jobs.mine_logs import history_of

    history = history_of(Run(out), settings)
    read = history.sources()
    partitions = partitions_of(remove_marker_files(list_files(logs, remote=True)), settings.logs.format)
    new = [partition for partition in partitions.values() if dates is None or partition.date in dates]
    if all(
        partition.date or partition.name in read for partition in new
    ):  # whose days nobody knows yet, the stage will tell
        marks = history.marks() if Run(out).manifests() else {}
        list(wish.decisions({**marks, **{partition.name: "" for partition in new if partition.date}}))
    return []


def _has_started(out: str) -> bool:
    return bool(read_notes(Run(out)))


def _place(out: str, *, mined: bool) -> list[str]:
    run = output_run(out, mined=mined)
    if run.store.local is not None:
        _writable(run.store.local, "--out")
    return []


def _cache(cache: CacheSettings) -> list[str]:
    store = PartFiles(cache.root, "verdicts", "judge", ()).store
    if store.local is not None:
        _writable(store.local, "cache.root")
    return []


def _writable(folder: Path, option: str) -> None:
    """See that files can be made below a folder that exists or will be made.

    Raises:
        NotWritable: they cannot; it names the option or setting that the folder is from.
    """
    try:
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        with explain_write_errors(existing), tempfile.TemporaryFile(dir=existing):
            pass
    except NotWritable as error:
        raise NotWritable(f"{option} {folder}: {error}") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise NotWritable(f"{option} {folder} cannot be made ({reason}); choose another place") from error


def _readable(path: str) -> list[str]:
    list_files(path, remote=True)
    return []


def _check_generated(folder: str | None) -> list[str]:
    if folder:
        Run(folder).tables(QUERIES.name, GENERATED)
    return []


def _labels(file: str, tenant: str) -> list[str]:
    read_labels(Path(file).expanduser(), tenant)
    return []
