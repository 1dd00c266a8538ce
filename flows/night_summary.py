"""Messages and decisions of a night of mining: new days, days held back, and what is fitted again."""

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa

from darklode.flows.decision_command import decision_command
from darklode.flows.executor import executor
from darklode.flows.mining_history import mining_inputs
from darklode.flows.prefect.naming import run_name
from darklode.flows.prefect.notifications import build_message, post_message
from darklode.flows.prefect.progress import reporter
from darklode.flows.runs import update_inputs
from darklode.pipeline.base.artifacts import Manifest, Run
from darklode.pipeline.base.errors import ArtifactError, CommandLineError, HeldBack
from darklode.pipeline.mine.admission.admitted_log import LEFT_OUT_FACT
from darklode.pipeline.mine.admission.decisions import DecisionRequest, Decisions
from darklode.pipeline.mine.admission.held_days import held_days
from darklode.pipeline.mine.admission.stage import ADMIT_DAYS
from darklode.pipeline.mine.history import History
from darklode.pipeline.triplets.placement import MISPLACED, has_old_layout, misplaced_triplets
from darklode.schemas.settings import Settings

N_NAMED = 5


def report_new_days(before: Manifest | None, after: Manifest) -> None:
    """Report which partitions of the log are new or changed."""
    earlier_sources = before.facts["sources"] if before else {}
    new = [name for name, basis in after.facts["sources"].items() if earlier_sources.get(name) != basis]
    if not new:
        reporter().say(f"no new days in the log: its {len(earlier_sources):,} partitions were read before")
    elif before:
        day_list = ", ".join(new[:N_NAMED]) + (" …" if len(new) > N_NAMED else "")
        reporter().say(f"new or changed in the log: {day_list}")


def warn_of_misplaced(run: Run) -> None:
    """Warn of triplets that an earlier version wrote to another tenant's folder; this night rewrites all of them."""
    if not has_old_layout(run):
        return
    try:
        files = list(misplaced_triplets(run))
    except ArtifactError:  # a damaged file is rewritten, too
        return
    if files:
        n = sum(file.misplaced for file in files)
        reporter().say(
            f"an earlier version of Darklode wrote {n:,} triplets that {MISPLACED}; they are rewritten now. Redo "
            "exports, adapters and towers made from this run"
        )


def decide(run: Run, history: History, request: DecisionRequest) -> None:
    """Record accepted and discarded days.

    Raises:
        SettingsError: the log does not have one of them.
    """
    Decisions(run.store).add(request.decisions(history.marks()))


def report_held_days(run: Run) -> None:
    """Report days that are held back without a decision; the run is complete without them.

    Raises:
        HeldBack: there is one.
    """
    admitted = run.manifest(ADMIT_DAYS)
    if admitted and admitted.facts.get(LEFT_OUT_FACT) == {}:
        return
    days_held = held_days(run.tables("log_days"))
    if not days_held:
        return
    rows = [
        {"date": day.date, "tenant": day.tenant, "rows": day.rows, "reasons": "; ".join(day.reasons)}
        for day in days_held
    ]
    reporter().table("Days held back", pa.Table.from_pylist(rows))
    sentences = [
        day.sentence(decision_command("--accept-day", [day.name]), decision_command("--discard-day", [day.name]))
        for day in days_held[:N_NAMED]
    ]
    more = [f"{len(days_held) - N_NAMED} more days are held back"] if len(days_held) > N_NAMED else []
    message = "\n".join([*sentences, *more, "everything else is published"])
    error = HeldBack(message, days=[day.name for day in days_held])
    _notify_held(run, error)
    raise error


def _notify_held(run: Run, error: HeldBack) -> None:
    """Post to the webhook, at most once a day, if no Prefect flow does: a night without work starts none."""
    now = datetime.now(UTC)
    before = mining_inputs(run).notified_on
    update_inputs(run, notified_on=now.date())
    if not executor().shows_progress and before != now.date():
        name = run_name({"out": run.store.url}, now)
        post_message(build_message("mine-logs", name, "held", str(error)), lambda message: reporter().say(message))


def request_refit(run: Run, history: History) -> None:
    """Record that term weights and click model are to be fitted again, on all days admitted so far."""
    if days := history.admitted_days():
        update_inputs(run, refit_through=date.fromisoformat(max(days)))


def with_test_days(history: History, settings: Settings, count: int) -> Settings:
    """Settings whose test data are the last `count` days up to the last admitted one."""
    admitted = history.admitted_days()
    first = date.fromisoformat(max(admitted)) - timedelta(count - 1) if admitted else None
    return settings.model_copy(update={"mining": settings.mining.model_copy(update={"test_from": first})})


def days(first: date | None, last: date | None) -> list[date] | None:
    """All days from the first to the last; None if neither is given.

    Raises:
        CommandLineError: only one is given, or the last is before the first.
    """
    if first is None and last is None:
        return None
    if first is None or last is None or last < first:
        raise CommandLineError(f"give both a first and a last day, the first not after the last (got {first}, {last})")
    return [first + timedelta(number) for number in range((last - first).days + 1)]
