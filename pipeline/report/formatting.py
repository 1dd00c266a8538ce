"""Numbers and texts as a reader sees them."""

import re
from datetime import date

UNKNOWN = "unknown"
_TURNS = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)])
_BAD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def number(value: object) -> str:
    """A table's value: thousands separated, at most three decimals, lists by dots, null as a dash."""
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
    """A tick's number, short: 20k, 1.5M, 0.25; all ticks of an axis up to `largest` have the same unit."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if largest >= 10 * size and value:
            return f"{value / size:,.4g}{letter}"
    return f"{value:,.6g}"


def share(part: float | None, decimals: int = 1) -> str:
    """A share of 1 in percent."""
    if not part:
        return UNKNOWN if part is None else "0 %"
    return f"{100 * part:.{decimals}f} %"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds >= 0.1 or not seconds else f"{1000 * seconds:.0f} ms"
    minutes, remaining_seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {remaining_seconds} s"


def clean(text: str) -> str:
    """A text without what no page can hold: control characters, halves of characters, non-characters."""
    return _BAD.sub("�", text)


def level(text: str) -> str:
    """A sentence of ours that quotes a text from outside, without what turns its direction."""
    return text.translate(_TURNS)


def first(text: str, characters: int) -> str:
    """The text's beginning, of about so many characters, whole words where it has any."""
    text = " ".join(text.split())
    if len(text) <= characters:
        return text
    head = text[:characters]
    space = head.rfind(" ")
    return (head[:space] if space > characters // 2 else head).rstrip() + " …"
