"""Phone numbers in a text, by their groups of digits, the words before them, and phonenumbers' numbering plans."""

import re
from collections.abc import Iterator

SEPARATORS = " \u00a0./()\u2010-\u2015-"
_CANDIDATE = re.compile(rf"(?<![\w.,/#-])(?:\+|\(\+)?\(?\d(?:[{SEPARATORS}]{{0,3}}\d){{6,16}}(?![\w%]|[.,:/-]\d)")
_DATE = re.compile(
    r"\(?(?:(?:19|20)\d\d([-/.])[01]?\d\1[0-3]?\d"
    r"|[0-3]?\d([-/.])[0-3]?\d\2(?:(?:19|20)\d\d|\d\d))(?![\d.])"
)
_YEARS = re.compile(r"(?:(?:19|20)\d\d(?:[ /–-]+|$))+")
_PHONE_CUE = re.compile(
    r"\b(?:phone|telephone|tel|mobile|cell|cellphone|fax|call|calling|dial|text|sms|whatsapp|signal|hotline|contact|ring"
    r"|telefon|telefonnummer|handy|mobil|rufnummer|anrufen|téléphone|portable|appeler|appelez|teléfono|móvil"
    r"|llamar"
    r"|telefono|cellulare|telefone|celular|telefoon)"
    r"(?:\s+(?:me|us|number|no|nummer|numéro|número|is|at|on|under|au|unter))*\W{0,3}\Z",
    re.I,
)
_ID_CUE = re.compile(
    r"\b(?:order|orders|id|ids|ticket|sku|isbn|issn|doi|part|item|case|serial|invoice|issue|bug|account|number of"
    r"|version|port|pid|uid|timestamp|epoch|ts|seed|hash|bytes|offset|build|commit|revision|rev|model|article|artikel|nr|no|ean"
    r"|upc|gtin|asin|ref|reference|tracking|line|row|code|error|status|size|value|max|min)\W{0,3}\Z",
    re.I,
)
_INTEGER_LIMITS = {"2147483647", "2147483648", "4294967295", "4294967296"}
_TRUNK_REGIONS = "GB FR DE IT NL BE AT CH SE FI AU NZ JP KR ZA IE TR IL".split()
_NINE_DIGIT_REGIONS = ("ES", "PT", "PL")


def phone_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each phone number."""
    for match in _CANDIDATE.finditer(text):
        if _is_phone(match[0], text[max(0, match.start() - 40) : match.start()]):
            yield match.span()


def _is_phone(text: str, before: str) -> bool:
    digits = re.sub(r"\D", "", text)
    if _DATE.match(text) or _YEARS.fullmatch(text) or len(set(digits)) == 1:
        return False
    if re.match(r"\(?(?:\+|00[1-9])", text):
        return _is_possible("+" + digits.removeprefix("00"))
    if _ID_CUE.search(before):
        return False
    if _PHONE_CUE.search(before):
        return len(digits) <= 13
    groups = [len(group) for group in re.findall(r"\d+", text)]
    return _is_plain_number(digits) if len(groups) == 1 else _is_grouped_number(text, digits, groups)


def _is_plain_number(digits: str) -> bool:
    """Whether digits without a sign between them are a number, with or without the 0 or 1 before the area."""
    if digits.startswith("0"):
        return 9 <= len(digits) <= 11 and _is_valid(digits, _TRUNK_REGIONS)
    if len(digits) == 11:
        return digits.startswith("1") and _is_valid(digits, ["US"])
    return len(digits) == 10 and digits[0] in "23456789" and digits not in _INTEGER_LIMITS


def _is_grouped_number(text: str, digits: str, groups: list[int]) -> bool:
    shape = "-".join(map(str, groups))
    if digits.startswith("0"):
        return 9 <= len(digits) <= 12 and 1 < groups[0] <= 6 and _is_trunk(text, digits)
    if re.match(r"\(\d{2,5}\)", text):
        return 9 <= len(digits) <= 11
    if shape in {"3-3-4", "1-3-3-4"}:
        return digits.removeprefix("1")[0] in "23456789"
    if shape == "5-5":
        return digits[0] in "6789"
    if shape in {"3-2-2-2", "2-3-2-2"} or (shape == "3-3-3" and "-" in text):
        return _is_valid(digits, _NINE_DIGIT_REGIONS)
    return False


def _is_trunk(text: str, digits: str) -> bool:
    """Whether a number that begins with 0 and stands in groups is one: valid anywhere, or of Germany's free length."""
    return _is_valid(digits, _TRUNK_REGIONS) or re.match(r"\(?0[1-9]\d{1,4}\)?[ /–-]+\d{3,}", text) is not None


def _is_possible(international: str) -> bool:
    import phonenumbers

    try:
        return bool(phonenumbers.is_possible_number(phonenumbers.parse(international)))
    except phonenumbers.NumberParseException:
        return False


def _is_valid(digits: str, regions: list[str] | tuple[str, ...]) -> bool:
    import phonenumbers

    for region in regions:
        try:
            if phonenumbers.is_valid_number(phonenumbers.parse(digits, region)):
                return True
        except phonenumbers.NumberParseException:
            continue
    return False
