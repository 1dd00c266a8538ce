"""Parse timestamps of logs into UTC."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.types import Mask
from darklode.pipeline.ingest.rows import blank_to_null, mask

UTC_MICROSECONDS = pa.timestamp("us", tz="UTC")
MICROSECONDS = pa.timestamp("us")
EPOCH_PATTERN = r"^[0-9]{10}$|^[0-9]{10}\.[0-9]+$|^[0-9]{13}$"

DATE_AND_HOUR_PATTERN = r"^20[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])([01][0-9]|2[0-3])(\.0+)?$"
"""Ambiguous: 2024010110 is 10:00 on 1 January 2024, or seconds since 1970 (in 2034)."""

FIRST_YEAR, LAST_YEAR = 1990, 2100
"""Valid years; exports write dates around year 1 and 9999 for "unknown"."""

UNREADABLE_TIMESTAMP = "unreadable timestamp"
AMBIGUOUS_TIMESTAMP = "timestamp is YYYYMMDDHH or seconds since 1970; write it as 2024-01-01T10:00:00"
TIMESTAMP_OUT_OF_RANGE = f"timestamp before {FIRST_YEAR} or after {LAST_YEAR}"

ISO_PREFIX_PATTERN = r"[0-9W-]{7,10}($|[Tt ])"
"""A date and a valid separator: `fromisoformat` accepts any character there, even digits."""

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FIRST_SECOND = int(datetime(FIRST_YEAR, 1, 1, tzinfo=UTC).timestamp())
_END_SECOND = int(datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC).timestamp())


def read_times(texts: pa.Array, zone: str = "UTC") -> tuple[pa.Array, list[tuple[str, Mask]]]:
    """Parse texts or convert timestamps; returns UTC times (null if empty or invalid) and masks of faults by reason.

    Formats: ISO 8601, with `T` or a space, and seconds (10 digits) or milliseconds (13 digits) since 1970. Times
    without a time zone are in `zone`: ambiguous ones (clock set back) are the earlier of the two; nonexistent ones
    (clock set forward) are the moment of the change.
    """
    if pa.types.is_timestamp(texts.type):
        return _with_faults(_in_utc(texts, zone), texts)
    texts_or_null = blank_to_null(texts)
    for kind in (UTC_MICROSECONDS, MICROSECONDS):
        try:
            return _with_faults(_in_utc(texts_or_null.cast(kind), zone), texts_or_null)
        except pa.ArrowInvalid:
            continue
    ambiguous = pc.fill_null(pc.match_substring_regex(texts_or_null, DATE_AND_HOUR_PATTERN), False)
    clear = pc.if_else(ambiguous, None, texts_or_null).cast(pa.string())
    epochs, parsed = _since_1970(clear), [None if text is None else _parse_iso(text) for text in clear.to_pylist()]
    readable = pc.or_(epochs.is_valid(), pa.array([time is not None for time in parsed], pa.bool_()))
    times = pc.coalesce(_in_range(epochs), _to_utc(parsed, zone))
    unreadable = pc.and_(clear.is_valid(), pc.invert(readable))
    outside = pc.and_(readable, times.is_null())
    return times, [
        (UNREADABLE_TIMESTAMP, mask(unreadable)),
        (AMBIGUOUS_TIMESTAMP, mask(ambiguous)),
        (TIMESTAMP_OUT_OF_RANGE, mask(outside)),
    ]


def _with_faults(times: pa.Array, texts: pa.Array) -> tuple[pa.Array, list[tuple[str, Mask]]]:
    return times, [(TIMESTAMP_OUT_OF_RANGE, mask(pc.and_(times.is_null(), texts.is_valid())))]


def _in_range(times: pa.Array) -> pa.Array:
    """Replace times outside the valid years by null; they could overflow microseconds or Python's dates."""
    count, per_second = times.cast(pa.int64()), _PER_SECOND[times.type.unit]
    first, end = _FIRST_SECOND * per_second, _END_SECOND * per_second
    return pc.if_else(pc.and_(pc.greater_equal(count, first), pc.less(count, end)), times, None)


def check_zone(zone: str) -> None:
    """Raise a SettingsError if a time zone is unknown."""
    try:
        pc.assume_timezone(pa.array([0], MICROSECONDS), zone)
    except (pa.ArrowInvalid, OSError) as error:
        message = f"logs.time_zone {zone!r} is not a known time zone; use a name such as Europe/Berlin or UTC"
        raise SettingsError(message) from error


def _in_utc(times: pa.Array, zone: str) -> pa.Array:
    microseconds = _in_range(times).cast(pa.timestamp("us", tz=times.type.tz), safe=False)
    if times.type.tz is None and zone != "UTC":
        microseconds = pc.assume_timezone(microseconds, zone, ambiguous="earliest", nonexistent="latest")
    return microseconds.cast(UTC_MICROSECONDS)


def _since_1970(texts: pa.Array) -> pa.Array:
    """Parse seconds or milliseconds since 1970; null for other texts."""
    digits = pc.if_else(pc.match_substring_regex(texts, EPOCH_PATTERN), texts, None).cast(pa.string())
    thousandfold = pc.if_else(pc.match_substring_regex(digits, r"^[0-9]{13}$"), 1_000, 1_000_000)
    seconds = pc.replace_substring_regex(digits, r"\..*", "").cast(pa.int64())
    part = pc.replace_substring_regex(digits, r"^[0-9]+", "0").cast(pa.float64())
    micro = pc.add(pc.multiply(seconds, thousandfold), pc.round(pc.multiply(part, 1e6)).cast(pa.int64()))
    return micro.cast(UTC_MICROSECONDS)


def _to_utc(times: Sequence[datetime | None], zone: str) -> pa.Array:
    """Convert times with and without a time zone to UTC."""
    aware = [time if time is not None and time.tzinfo else None for time in times]
    naive = [time if time is not None and not time.tzinfo else None for time in times]
    return pc.coalesce(_in_range(pa.array(aware, UTC_MICROSECONDS)), _in_utc(pa.array(naive, MICROSECONDS), zone))


def _parse_iso(text: str) -> datetime | None:
    """Parse ISO 8601; None if invalid, or if only digits that could mean anything else."""
    try:
        if (text.isdecimal() and len(text) != len("20240101")) or not re.match(ISO_PREFIX_PATTERN, text):
            return None
        time = datetime.fromisoformat(text.removesuffix(" UTC"))
        if text.endswith(" UTC") and time.tzinfo is None:
            return time.replace(tzinfo=UTC)
        return time.astimezone(UTC) if time.tzinfo else time
    except (ValueError, OverflowError):
        return None
