"""Rates of wrong replies per kind of probe, with intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.judge.calibration import wilson
from darklode.pipeline.judge.probe.kinds import AS_EXPECTED, EXCLUDED, NOT_READ, PROBE_KINDS, REPEATED, WRONG
from darklode.schemas.probe_tables import JUDGE_PROBE

MIN_PROBES = 10
"""Kinds with fewer readable probes do not count in `worst_rate`: the interval of their rate is wider than ± .25."""


def probe_rates(
    outcomes: Mapping[str, Sequence[str]],
    unanswered: Mapping[str, int],
    skipped: Mapping[str, str],
    judge_ids: Mapping[str, Sequence[str]],
) -> pa.Table:
    """Rows of `judge_probe`, in the order of `PROBE_KINDS`.

    Each probe of a kind is of another query, so that the Wilson interval needs no correction for clusters.

    Args:
        outcomes: outcome of each judged probe, by kind.
        unanswered: number of probes that were not judged, by kind; the rate of a kind with any is unknown.
        skipped: reasons of the kinds without probes.
        judge_ids: judges that replied, by kind.

    Raises:
        ValueError: a kind has neither probes nor a reason.
    """
    rows = [
        _row(kind, outcomes.get(kind, ()), unanswered.get(kind, 0), skipped.get(kind), judge_ids.get(kind, ()))
        for kind in PROBE_KINDS
    ]
    noise = next(row["rate"] for row in rows if row["kind"] == REPEATED)
    return pa.Table.from_pylist([row | {"noise": noise} for row in rows], schema=JUDGE_PROBE.schema)


def _row(
    kind: str, outcomes: Sequence[str], unanswered: int, skipped: str | None, judge_ids: Sequence[str]
) -> dict[str, Any]:
    if (len(outcomes) + unanswered > 0) == (skipped is not None):
        raise ValueError(f"{kind}: {len(outcomes) + unanswered} probes, and the reason {skipped!r} for none")
    counts = Counter(outcomes)
    pairs, wrong = counts[WRONG] + counts[AS_EXPECTED], counts[WRONG]
    row = {
        "kind": kind,
        "measure": PROBE_KINDS[kind].measure,
        "pairs": pairs,
        "wrong": wrong,
        "unreadable": counts[NOT_READ],
        "unanswered": unanswered,
        "excluded": counts[EXCLUDED],
        "rate": None,
        "low": None,
        "high": None,
        "skipped": skipped,
        "judge_ids": list(judge_ids),
    }
    if pairs and not unanswered:
        low, high = wilson(np.array([wrong]), np.array([pairs]))
        row |= {"rate": wrong / pairs, "low": float(low[0]), "high": float(high[0])}
    return row
