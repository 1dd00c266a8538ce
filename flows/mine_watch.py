"""Whether a night may be published: it is compared with those before it."""

import pyarrow as pa
from prefect.artifacts import create_table_artifact

from flows.reporting import reporter
from pipeline.artifacts import Run
from pipeline.errors import HeldBack
from pipeline.mining import statistics
from pipeline.mining.drift import drift
from pipeline.views import all_tables
from schemas.mining import MiningSettings


def watch(run: Run, settings: MiningSettings) -> None:
    """Say how the newest day differs from those before it.

    Raises:
        HeldBack: by more than `mining.max_drift`.
    """
    found = drift(statistics.nights(all_tables(run)))
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
