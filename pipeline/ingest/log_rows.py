"""Rows of a search log as they are staged: each value of its type, what cannot be used turned away."""

from dataclasses import dataclass
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.ingest.block import Block, Mask, blank, common_faults, emptied, mask, weed
from pipeline.ingest.ledger import Ledger
from pipeline.ingest.log_values import normalised, read_clicks, read_positions, read_seconds
from pipeline.ingest.staging import STAGED
from pipeline.ingest.times import read_times
from schemas.mining import LogSettings
from schemas.settings import IngestSettings

Faults = list[tuple[str, Mask]]


@dataclass(frozen=True)
class Rules:
    """How the rows of one partition are read.

    Attributes:
        settings: the settings `logs`.
        ingest: the settings `ingest`.
        date: the partition's day; None: events of any day are its own.
    """

    settings: LogSettings
    ingest: IngestSettings
    date: date | None

    @property
    def days(self) -> tuple[int, int]:
        """The first and the last day (UTC) that an event may have, in days since 1970.

        A day by another clock than UTC's begins on the UTC day before, or ends on the one after.
        """
        day = ((self.date or date(1970, 1, 1)) - date(1970, 1, 1)).days
        ahead = self.settings.time_zone != "UTC"
        return day - max(self.settings.late_days, int(ahead)), day + 1

    def shift(self, *, zero: bool) -> int:
        """What is to be added to positions to count from 1; `zero` says whether any of them is 0."""
        first = self.settings.first_position
        return int(zero) if first == "auto" else 1 - first


def usable(block: Block, rules: Rules, ledger: Ledger) -> pa.Table:
    """The rows that can be used, with the schema STAGED; positions count from where the log begins to."""
    faults = common_faults(block, "", rules.ingest.max_row_bytes, "query")
    faults.append(("empty doc_id", blank(block.columns["doc_id"])))
    sound = weed(block, faults, ledger).completed(rules.ingest.tenant)
    values, bad = _values(sound, rules)
    kept = ~np.logical_or.reduce([hit for _, hit in bad])
    weed(sound, bad, ledger)
    rows = pa.table([values[name] for name in STAGED.names], schema=STAGED)
    return rows if kept.all() else rows.filter(pa.array(kept))


def _values(block: Block, rules: Rules) -> tuple[dict[str, pa.Array], Faults]:
    columns = {role: block.columns.get(role, block.nulls()) for role in (*STAGED.names, "timestamp")}
    times, untimely = read_times(columns["timestamp"], rules.settings.time_zone)
    positions, unplaced = read_positions(columns["position"])
    clicks, unclear = read_clicks(columns["clicked"])
    seconds, unmeasured = read_seconds(columns["dwell_seconds"])
    days = times.cast(pa.date32()).cast(pa.int32())
    least = 1 if rules.settings.first_position == 1 else 0
    faults = [
        ("unreadable timestamp", untimely),
        ("missing timestamp", mask(times.is_null())),
        ("position is not a whole number", unplaced),
        ("position is below the first place", mask(pc.less(positions, least))),
        ("clicked is neither a truth value nor a count", unclear),
        ("dwell_seconds is not a number from 0", unmeasured),
    ]
    if rules.date is not None:
        first, last = rules.days
        faults.append(("outside its partition's days", mask(pc.or_(pc.less(days, first), pc.greater(days, last)))))
    ids = {role: emptied(columns[role]) for role in ("event_id", "search_id", "session_id", "doc_id")}
    typed = {"day": days, "time": times.cast(pa.int64()), "position": positions, "clicked": clicks}
    query = normalised(columns["query"], masking=rules.settings.mask_personal_data)
    return ids | typed | {"tenant": columns["tenant"], "query": query, "dwell_seconds": seconds}, faults
