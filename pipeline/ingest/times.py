"""Points in time as logs write them, in UTC."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.ingest.block import Mask, emptied, mask

UTC_MICROSECONDS = pa.timestamp("us", tz="UTC")


def read_times(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Times from texts, null where there is none; and where a text is no time.

    Read are ISO 8601, with `T` or a space, and seconds (10 digits) or milliseconds (13) since 1970. A time without a
    zone is taken for UTC.
    """
    given = emptied(texts)
    for kind in (UTC_MICROSECONDS, pa.timestamp("us")):
        try:
            return given.cast(kind).cast(UTC_MICROSECONDS), np.zeros(len(given), dtype=bool)
        except pa.ArrowInvalid:
            continue
    times = pa.array([None if text is None else _time(text) for text in given.to_pylist()], UTC_MICROSECONDS)
    return times, mask(pc.and_(times.is_null(), given.is_valid()))


def _time(text: str) -> datetime | None:
    try:
        if text.isdecimal() and len(text) in {10, 13}:
            return datetime.fromtimestamp(int(text) / (1 if len(text) == 10 else 1000), UTC)
        time = datetime.fromisoformat(text.removesuffix(" UTC"))
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
