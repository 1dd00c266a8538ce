"""Masking personal data and secrets in queries, so that they reach no dataset."""

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.phone_numbers import phone_spans
from darklode.pipeline.base.secret_patterns import secret_spans

Span = tuple[int, int]

SUSPECT_PATTERN = (
    r"[@＠]|%40|[([{](?i:at)[)\]}]|\pN(?:[^\pL\pN]{0,3}\pN){6,}|:[0-9a-fA-F]*:|(?:\d{1,3}\.){3}\d"
    r"|[\w/+=.~-]{16,}|://|(?i:passw|passphrase|pwd|secret|token|(?:api|access|private).?key)"
)
"""RE2 pattern of texts that may contain personal data; other texts are skipped."""

_CJK_RANGES = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_NO_NAME_CHARACTERS = r"\s@＠<>()\[\]{}\"`,;:|\\/=?!*#$^，。、：；！？（）「」【】《》“”‘"
_NAME_CHARACTER = rf"[^{_NO_NAME_CHARACTERS}{_CJK_RANGES}]"
_FIRST_NAME_CHARACTER = rf"[^{_NO_NAME_CHARACTERS}{_CJK_RANGES}'’.&~%+-]"
_DOMAIN_LABEL = rf"(?:[^{_NO_NAME_CHARACTERS}{_CJK_RANGES}'’.&~%+_]{{1,63}}|[{_CJK_RANGES}\w-]{{1,63}})"
_EMAIL = re.compile(
    rf"(?:{_FIRST_NAME_CHARACTER}{_NAME_CHARACTER}{{0,63}}|[{_CJK_RANGES}0-9._-]{{1,64}}|\"[^\"@\n]{{1,64}}\")(?:[@＠]|%40)"
    rf"(?P<domain>{_DOMAIN_LABEL}(?:[.．。]{_DOMAIN_LABEL})+)"
)
_SPELT_OUT_EMAIL = re.compile(
    r"[\w.+-]{1,64} ?[(\[{]at[)\]}] ?[\w-]{1,63}(?: ?(?:\.|[(\[{](?:dot|punkt)[)\]}]) ?[\w-]{1,63}){1,5}", re.I
)
_NO_TOP_LEVEL_DOMAINS = frozenset(
    "png jpg jpeg gif svg webp service socket timer target mount js ts tsx jsx json yaml yml css scss html".split()
)
_MAC = re.compile(r"(?<![\w:.-])[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}(?![\w:])")
_IPV6 = re.compile(
    r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:(?:\d{1,3}\.){3}\d{1,3}|[0-9A-Fa-f]{0,4})(?:%\w{1,16})?(?![\w:])"
)
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d|-[A-Za-z])")
_VERSION_CUE = re.compile(
    r"(?:\b(?:version|ver|release|build|section|chapter|clause|table|figure|sec)\.?|§)\s*v?\Z", re.I
)
_CARD = re.compile(r"(?<![\w.+-])\d(?:[ \u00a0.-]?\d){12,18}(?!\w|\.\d)")
_CARD_GROUPS = re.compile(r"\d{4}([ \u00a0.-])\d{4}\1\d{4}\1\d{4}|3[47]\d\d([ \u00a0.-])\d{6}\2\d{5}")


def mask(text: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Replace e-mail addresses, secrets, IP and MAC addresses, card and phone numbers by the kind in brackets."""
    suspects = pc.fill_null(pc.match_substring_regex(text, SUSPECT_PATTERN), False)
    distinct = text.filter(suspects).unique()
    if not len(distinct):
        return text
    masked = pa.array([mask_text(suspect) for suspect in distinct.to_pylist()], text.type)
    return pc.if_else(suspects, masked.take(pc.index_in(text, distinct)), text)


def mask_text(text: str) -> str:
    """One text with its personal data masked."""
    for name, find in _FINDERS:
        spans = _merge_spans(find(text))
        for start, end in reversed(spans):
            text = f"{text[:start]}[{name}]{text[end:]}"
    return text


def _merge_spans(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, those that overlap as one."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _emails(text: str) -> Iterator[Span]:
    for match in _EMAIL.finditer(text):
        last = re.split(r"[.．。]", match["domain"])[-1].lower()
        is_remote = match[0].startswith("git@") and text[match.end() : match.end() + 1] == ":"
        if not (is_remote or last in _NO_TOP_LEVEL_DOMAINS or len(last) < 2 or any(map(str.isdigit, last[:1]))):
            yield match.span()
    yield from (match.span() for match in _SPELT_OUT_EMAIL.finditer(text))


def _mac_addresses(text: str) -> Iterator[Span]:
    return (match.span() for match in _MAC.finditer(text))


def _addresses(text: str) -> Iterator[Span]:
    for match in _IPV6.finditer(text):
        address = match[0].partition("%")[0]
        cut = address.endswith(":") and not address.endswith("::")
        if _is_ipv6(address.removesuffix(":") if cut else address):
            yield match.start(), match.end() - cut
    for match in _IPV4.finditer(text):
        if _is_ipv4(match[0]) and not _VERSION_CUE.search(text[max(0, match.start() - 12) : match.start()]):
            yield match.span()


def _is_ipv6(text: str) -> bool:
    """Whether it is somebody's address: no time, no path of C++, not the loopback, not the unspecified address."""
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return False
    groups = [group for group in text.split(":") if group]
    is_long_form = len(groups) == 8 or any(len(group) >= 3 for group in groups)
    return is_long_form and any(map(str.isdigit, text)) and not (address.is_loopback or address.is_unspecified)


def _is_ipv4(text: str) -> bool:
    """Whether it is an address that is somebody's: not the loopback, the unspecified address or a net's mask."""
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified or text.startswith("255."))


def _cards(text: str) -> Iterator[Span]:
    for match in _CARD.finditer(text):
        digits = re.sub(r"\D", "", match[0])
        if _CARD_GROUPS.fullmatch(match[0]) or (
            "." not in match[0] and digits[0] in "23456" and _has_check_digit(digits)
        ):
            yield match.span()


def _has_check_digit(digits: str) -> bool:
    """Luhn's check."""
    doubled = [int(digit) * (1 + at % 2) for at, digit in enumerate(reversed(digits))]
    return len(set(digits)) > 1 and sum(value - 9 * (value > 9) for value in doubled) % 10 == 0


_FINDERS: tuple[tuple[str, Callable[[str], Iterable[Span]]], ...] = (
    ("email", _emails),
    ("token", secret_spans),
    ("mac", _mac_addresses),
    ("ip", _addresses),
    ("card", _cards),
    ("phone", phone_spans),
)
"""Applied in this order: an address in a URL must be masked before its digits look like a phone number."""
