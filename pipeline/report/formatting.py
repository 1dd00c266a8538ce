"""Formatting of numbers and texts."""

import re
from datetime import date

UNKNOWN = "unknown"
_BIDI_CONTROLS = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)])
_INVALID_HTML = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def number(value: object) -> str:
    """Format a table value: thousands separators, at most three decimals, list items joined by dots, null as a dash."""
    match value:
        case None:
            text = "–"
        case bool():
            text = "yes" if value else "no"
        case int():
            text = f"{value:,}"
        case float():
            text = _decimal(value)
        case date():
            text = value.isoformat()
        case list():
            text = " · ".join(number(item) for item in value)
        case _:
            text = clean(str(value))
    return text


def _decimal(value: float) -> str:
    if not abs(value) < 1e15:
        return f"{value:.3g}"
    decimals = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 3
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def brief(value: float, largest: float) -> str:
    """Format a tick, e.g. 20k, 1.5M or 0.25; all ticks of an axis up to `largest` get the same unit."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if largest >= 10 * size and value:
            return f"{value / size:,.4g}{letter}"
    return f"{value:,.6g}"


def share(part: float | None, decimals: int = 1) -> str:
    """Format a share as percent."""
    if not part:
        return UNKNOWN if part is None else "0 %"
    return f"{100 * part:.{decimals}f} %"


def duration(seconds: float) -> str:
    """Format seconds with a suitable unit."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds >= 0.1 or not seconds else f"{1000 * seconds:.0f} ms"
    minutes, remaining_seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {remaining_seconds} s"


_DIGEST = re.compile("[0-9a-f]{12,}")
MAX_ID = 64
"""Maximum length of a short id."""


def short_id(judge_id: str) -> str:
    """Shorten a judge's id: kind, model without folder and revision, and the beginnings of digests.

    Args:
        judge_id: parts joined by colons, such as `encoder-1:sentence_transformers:owner/model@revision:dtype=float32`.
    """
    parts = [part.partition("@")[0].rpartition("/")[2] for part in judge_id.split(":") if "=" not in part]
    text = ":".join(part[:6] if _DIGEST.fullmatch(part) else part for part in parts)
    return first(text, MAX_ID)


def clean(text: str) -> str:
    """Replace characters that HTML does not allow: controls, surrogates and noncharacters."""
    return _INVALID_HTML.sub("�", text)


def strip_bidi_controls(text: str) -> str:
    """Remove bidirectional control characters, which a quoted untrusted text may contain."""
    return text.translate(_BIDI_CONTROLS)


def first(text: str, characters: int) -> str:
    """Truncate to about `characters`, at a word boundary if possible."""
    text = " ".join(text.split())
    if len(text) <= characters:
        return text
    head = text[:characters]
    space = head.rfind(" ")
    return (head[:space] if space > characters // 2 else head).rstrip() + " …"
