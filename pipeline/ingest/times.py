"""Points in time as logs write them, in UTC."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.ingest.rows import Mask, emptied, mask

UTC_MICROSECONDS = pa.timestamp("us", tz="UTC")
MICROSECONDS = pa.timestamp("us")
EPOCH = r"^[0-9]{10}$|^[0-9]{10}\.[0-9]+$|^[0-9]{13}$"


def read_times(texts: pa.Array, zone: str = "UTC") -> tuple[pa.Array, Mask]:
    """Times from texts or from timestamps, null where there is none; and where a text is no time.

    Read are ISO 8601, with `T` or a space, and seconds (10 digits) or milliseconds (13) since 1970. A time without a
    zone is taken for one of `zone`: of the two that a clock set back shows, the earlier; of the hour that a clock set
    forward skips, the moment of the change.
    """
    if pa.types.is_timestamp(texts.type):
        return _in_utc(texts, zone), np.zeros(len(texts), dtype=bool)
    given = emptied(texts)
    for kind in (UTC_MICROSECONDS, MICROSECONDS):
        try:
            return _in_utc(given.cast(kind), zone), np.zeros(len(given), dtype=bool)
        except pa.ArrowInvalid:
            continue
    times = pc.coalesce(_since_1970(given), _one_by_one(given, zone))
    return times, mask(pc.and_(times.is_null(), given.is_valid()))


def check_zone(zone: str) -> None:
    """Raise a SettingsError where `zone` is not the name of a time zone."""
    try:
        pc.assume_timezone(pa.array([0], MICROSECONDS), zone)
    except (pa.ArrowInvalid, OSError) as error:
        message = f"logs.time_zone {zone!r} is no time zone that is known here; write it as in Europe/Berlin or UTC"
        raise SettingsError(message) from error


def _in_utc(times: pa.Array, zone: str) -> pa.Array:
    small = times.cast(pa.timestamp("us", tz=times.type.tz), safe=False)
    if times.type.tz is None and zone != "UTC":
        small = pc.assume_timezone(small, zone, ambiguous="earliest", nonexistent="latest")
    return small.cast(UTC_MICROSECONDS)


def _since_1970(given: pa.Array) -> pa.Array:
    """The times of the texts that are a number of seconds or milliseconds; null elsewhere."""
    digits = pc.if_else(pc.match_substring_regex(given, EPOCH), given, None).cast(pa.string())
    thousandfold = pc.if_else(pc.match_substring_regex(digits, r"^[0-9]{13}$"), 1_000, 1_000_000)
    whole = pc.replace_substring_regex(digits, r"\..*", "").cast(pa.int64())
    part = pc.replace_substring_regex(digits, r"^[0-9]+", "0").cast(pa.float64())
    micro = pc.add(pc.multiply(whole, thousandfold), pc.round(pc.multiply(part, 1e6)).cast(pa.int64()))
    return micro.cast(UTC_MICROSECONDS)


def _one_by_one(given: pa.Array, zone: str) -> pa.Array:
    """Texts in several notations; null for those that are no time or only digits."""
    times = [None if text is None else _time(text) for text in given.to_pylist()]
    aware = [time if time is not None and time.tzinfo else None for time in times]
    naive = [time if time is not None and not time.tzinfo else None for time in times]
    return pc.coalesce(pa.array(aware, UTC_MICROSECONDS), _in_utc(pa.array(naive, MICROSECONDS), zone))


def _time(text: str) -> datetime | None:
    try:
        if text.isdecimal() and len(text) in {10, 13}:
            return None
        time = datetime.fromisoformat(text.removesuffix(" UTC"))
        if text.endswith(" UTC") and time.tzinfo is None:
            return time.replace(tzinfo=UTC)
        return time.astimezone(UTC) if time.tzinfo else time
    except (ValueError, OverflowError):
        return None
