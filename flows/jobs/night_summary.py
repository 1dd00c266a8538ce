"""What a night of mining says of the log: what came, which days are held back, and what is learned anew."""

from datetime import UTC, date, datetime, timedelta

from darklode.flows.executor import executor
from darklode.flows.prefect.naming import run_name
from darklode.flows.prefect.notifications import build_message, post_message
from darklode.flows.prefect.progress import reporter
from darklode.flows.runs import note, read_notes
from darklode.pipeline.base.artifacts import Manifest, Run
from darklode.pipeline.base.errors import ArtifactError, CommandLineError, HeldBack
from darklode.pipeline.mine.admission.admitted_log import WITHOUT
from darklode.pipeline.mine.admission.decisions import DecisionRequest, Decisions
from darklode.pipeline.mine.admission.stage import ADMIT_DAYS
from darklode.pipeline.mine.history import History
from darklode.pipeline.triplets.placement import MISPLACED, has_old_layout, misplaced_triplets
from darklode.schemas.settings import Settings

NAMED = 5
LEARN, TOLD = "learn", "told"
"""What is noted of a run: through which day to learn, and on which day (UTC) somebody was told of days held back."""


def report_new_days(before: Manifest | None, after: Manifest) -> None:
    """Say which partitions of the log are new, or that none is."""
    earlier_sources = before.facts["sources"] if before else {}
    new = [name for name, basis in after.facts["sources"].items() if earlier_sources.get(name) != basis]
    if not new:
        reporter().say(f"nothing new in the log: its {len(earlier_sources):,} partitions were read before")
    elif before:
        day_list = ", ".join(new[:NAMED]) + (" …" if len(new) > NAMED else "")
        reporter().say(f"new in the log, or changed: {day_list}")


def tell_misplaced(run: Run) -> None:
    """Warn of triplets that an earlier version wrote to another tenant's folder; this night writes all of them anew."""
    if not has_old_layout(run):
        return
    try:
        files = list(misplaced_triplets(run))
    except ArtifactError:  # a damaged file, of which nothing can be told but that it is written anew
        return
    if files:
        n = sum(file.misplaced for file in files)
        reporter().say(
            f"an earlier version of Darklode wrote {n:,} triplets that {MISPLACED}; they are written anew now. Make "
            "exports, adapters and towers from this run again"
        )


def decide(run: Run, history: History, wish: DecisionRequest) -> None:
    """Note which days somebody accepts or discards.

    Raises:
        SettingsError: the log does not hold one of them.
    """
    Decisions(run.store).add(wish.decisions(history.marks()))


HELD = """
    SELECT CAST(date AS VARCHAR) AS date, tenant, rows, array_to_string(reasons, '; ') AS reasons,
           CASE WHEN count(*) OVER (PARTITION BY date) = 1 THEN CAST(date AS VARCHAR)
                ELSE concat(tenant, ':', CAST(date AS VARCHAR)) END AS name
    FROM log_days QUALIFY state = 'held' ORDER BY date, tenant
"""


def report_held_days(run: Run) -> None:
    """Show the days that are held back and undecided; the run is complete without them.

    Raises:
        HeldBack: there is one.
    """
    admitted = run.manifest(ADMIT_DAYS)
    if admitted and admitted.facts.get(WITHOUT) == {}:
        return
    rows = run.tables("log_days").sql(HELD)
    if not rows.num_rows:
        return
    shown = rows.drop_columns(["name"])
    reporter().table("Days held back", shown)
    reasons_text = "; ".join(f"{row['name']} ({row['reasons']})" for row in rows.to_pylist()[:NAMED])
    more = f" and {rows.num_rows - NAMED} more" if rows.num_rows > NAMED else ""
    error = HeldBack(
        f"held back, everything else is published: {reasons_text}{more}. Look into the log: --accept-day takes a day "
        "in, --discard-day leaves it out for good (deployments: accept_days, discard_days); a file that replaces it is "
        "judged anew",
        days=rows["name"].to_pylist(),
    )
    _notify_held(run, error)
    raise error


def _notify_held(run: Run, error: HeldBack) -> None:
    """Tell whoever waits of a night that had nothing to do, and so no flow; once a day."""
    now = datetime.now(UTC)
    before = read_notes(run).get(TOLD)
    note(run, {TOLD: now.date().isoformat()})
    if not executor().shows_progress and before != now.date().isoformat():
        name = run_name({"out": run.store.url}, now)
        post_message(build_message("mine-logs", name, "held", str(error)), lambda message: reporter().say(message))


def ask_to_learn(run: Run, history: History) -> None:
    """Note the wish that planner and click model learn from all that is settled by now."""
    if days := history.admitted_days():
        note(run, {LEARN: max(days)})


def testing_on(history: History, settings: Settings, count: int) -> Settings:
    """Settings by which so many days at the end of what is admitted are test data."""
    admitted = history.admitted_days()
    first = date.fromisoformat(max(admitted)) - timedelta(count - 1) if admitted else None
    return settings.model_copy(update={"mining": settings.mining.model_copy(update={"test_from": first})})


def is_learning_requested(run: Run) -> date | None:
    """The log's last day when somebody asked to learn anew; None: nobody did."""
    requested = read_notes(run).get(LEARN)
    return date.fromisoformat(requested) if requested else None


def days(first: date | None, last: date | None) -> list[date] | None:
    """All days from the first to the last; None: whatever there is.

    Raises:
        CommandLineError: only one of them is given, or the last is before the first.
    """
    if first is None and last is None:
        return None
    if first is None or last is None or last < first:
        raise CommandLineError(f"name a first and a last day, the first not after the last (got {first} and {last})")
    return [first + timedelta(number) for number in range((last - first).days + 1)]
