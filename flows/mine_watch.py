"""Whether a night may be published: it is compared with those before it."""

import pyarrow as pa
import pyarrow.compute as pc
from prefect.artifacts import create_table_artifact

from flows.reporting import reporter
from pipeline.artifacts import Manifest, Run
from pipeline.errors import HeldBack
from pipeline.mining import statistics
from pipeline.mining.drift import drift
from pipeline.views import all_tables
from schemas.mining import MiningSettings

NAMED = 5


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
    create_table_artifact(rows, key="drift", description=run.store.url)
    reporter().table("Unlike the seven days before", pa.Table.from_pylist(rows))
    bound = settings.max_drift
    worst = max(flagged, key=lambda one: abs(one.change))
    if bound is not None and abs(worst.change) > bound:
        said = "; ".join(map(str, flagged))
        raise HeldBack(
            f"the night of {worst.date} is held back, the triplets stay as they were: {said}. Look into the log; "
            f"publish it with --set mining.max_drift=null"
        )
