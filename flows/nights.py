"""What a night of mining says of the log: what came, whether it is unlike the days before, and what is learned anew."""

from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from darklode.flows.executor import Exhibit, executor
from darklode.flows.reporting import reporter
from darklode.flows.runs import note, noted
from darklode.pipeline.base.artifacts import Manifest, Run
from darklode.pipeline.base.errors import HeldBack
from darklode.pipeline.base.views import all_tables
from darklode.pipeline.report import statistics
from darklode.pipeline.report.caveats import drift
from darklode.schemas.mining import MiningSettings

NAMED = 5
LEARN = "learn"


def tell_what_came(before: Manifest | None, after: Manifest) -> None:
    """Say which partitions of the log are new, or that none is."""
    known = before.facts["sources"] if before else {}
    new = [name for name, basis in after.facts["sources"].items() if known.get(name) != basis]
    if not new:
        reporter().say(f"nothing new in the log: its {len(known):,} partitions were read before")
    elif before:
        named = ", ".join(new[:NAMED]) + (" …" if len(new) > NAMED else "")
        reporter().say(f"new in the log, or changed: {named}")


def watch(run: Run, settings: MiningSettings) -> None:
    """Say how the newest day differs from those before it; days of test data are not looked at.

    Raises:
        HeldBack: by more than `mining.max_drift`.
    """
    nights = statistics.nights(all_tables(run))
    if settings.test_from is not None:
        nights = nights.filter(pc.less(nights["date"], pa.scalar(settings.test_from)))
    found = drift(nights)
    flagged = [one for one in found if abs(one.change) > settings.flag_drift]
    if not flagged:
        return
    rows = [vars(one) for one in flagged]
    executor().show([Exhibit("drift", rows, run.store.url)])
    reporter().table("Unlike the seven days before", pa.Table.from_pylist(rows))
    bound = settings.max_drift
    worst = max(flagged, key=lambda one: abs(one.change))
    if bound is not None and abs(worst.change) > bound:
        said = "; ".join(map(str, flagged))
        raise HeldBack(
            f"the night of {worst.date} is held back, the triplets stay as they were: {said}. Look into the log; "
            f"publish it with --set mining.max_drift=null"
        )


def ask_to_learn(run: Run) -> None:
    """Note the wish that planner and click model learn from all that is settled by now."""
    days = run.tables("impressions").by_day("impressions", "timestamp")
    if days:
        note(run, {LEARN: max(days)})


def asked_to_learn(run: Run) -> date | None:
    """The log's last day when somebody asked to learn anew; None: nobody did."""
    asked = noted(run).get(LEARN)
    return date.fromisoformat(asked) if asked else None
