"""Secrets in a text: detect-secrets' patterns, prefixes that it does not know, assignments, and random characters."""

import importlib
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

_DETECTORS = {
    "aws": "AWSKeyDetector",
    "azure_storage_key": "AzureStorageKeyDetector",
    "discord": "DiscordBotTokenDetector",
    "github_token": "GitHubTokenDetector",
    "gitlab_token": "GitLabTokenDetector",
    "mailchimp": "MailchimpDetector",
    "pypi_token": "PypiTokenDetector",
    "sendgrid": "SendGridDetector",
    "slack": "SlackDetector",
    "square_oauth": "SquareOAuthDetector",
    "stripe": "StripeDetector",
    "telegram_token": "TelegramBotTokenDetector",
    "twilio": "TwilioKeyDetector",
}
"""Detectors of detect-secrets whose patterns recognize a secret by its form in linear time. Those for JWT and OpenAI
take quadratic time; `_JWT` and `_KEY_LIKE` replace them."""

_PRIVATE_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END [A-Z0-9 ]*-----|\Z)"
)
_URL_CREDENTIALS = re.compile(r"(?<=://)[^\s/@:]*:[^\s/@]+(?=@)")
_PREFIXED_TOKEN = re.compile(
    r"\b(?:github_pat_\w{20,}|gh[opsur]_\w{16,}|AIza[\w-]{30,}|npm_\w{30,}|hf_[A-Za-z0-9]{24,}|xapp-[\w-]{16,}"
    r"|xox[a-z][-.][\w-]{10,}|glpat-[\w-]{16,}|dckr_pat_[\w-]{20,}|dop_v1_\w{32,}|shp(?:at|ca|pa|ss)_\w{24,}"
    r"|ya29\.[\w-]{16,}|hvs\.[\w-]{20,}|rubygems_\w{32,}|pypi-[\w-]{32,}|xkeysib-[\w-]{32,}|lin_api_\w{24,}"
    r"|ATATT3x[\w=-]{20,}|r8_\w{24,}|gsk_\w{24,}|SG\.[\w-]{16,}\.[\w-]{16,}|(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{12,}"
    r"|sk-ant-[\w-]{16,}|AGE-SECRET-KEY-\w{20,}|whsec_[\w+/]{16,})"
)
# Only an eyJ among a word's first characters begins one: each that is tried reads the rest of the word.
_JWT = re.compile(r"(?<![\w=-])[\w=-]{0,100}?\b(eyJ[\w=-]{8,}+\.[\w=-]{8,}(?:\.[\w=-]*)?)")
_KEY_LIKE = re.compile(
    r"\b(?:sk|pk|rk|pel|key|pat|api|tok|ntn|secret|NRAK)[-_](?:(live|test|proj|or|svcacct)[-_])?([\w-]{14,})"
)
_HEX_STRING = re.compile(r"(?<![\w-])[0-9a-fA-F]{32,}(?![\w-])")
_BEARER_TOKEN = re.compile(r"\b(bearer|basic|token|apikey)[:=]?\s+[\"']?((?-i:[A-Za-z0-9._~+/-]{16,}={0,2}))", re.I)
_ASSIGNED_SECRET = re.compile(
    r"(?:\b|_|-)(?:password|passwd|passphrase|passwort|pwd|secret|api[_ -]?key|access[_ -]?key(?:[_ -]?id)?"
    r"|(?:auth|access)[_ -]?token|client[_ -]?secret|secret[_ -]?(?:access[_ -]?)?key|token|private[_ -]?key)"
    r"[\"']?\s*(?:[:=]>?|\bis\b)\s*[\"']?([^\s\"'`,;|(){}\[\]<>]{6,})",
    re.I,
)
_PLACEHOLDER = re.compile(r"[$%*#]|your|my[_-]|x{3,}|\.{3}|example|placeholder|changeme|env\.|process\.|config\.", re.I)
_WORD = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{4,}")
_RANDOM_STRING = re.compile(r"(?<![\w/+.@-])[A-Za-z0-9+/_-]{24,}={0,2}(?![\w/+@])")


_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@cache
def _library() -> list[re.Pattern[str]]:
    patterns: list[re.Pattern[str]] = []
    for module, name in _DETECTORS.items():
        detector = getattr(importlib.import_module(f"detect_secrets.plugins.{module}"), name)
        patterns += detector.denylist
    return [re.compile(rf"(?<![A-Za-z0-9]){pattern.pattern}", pattern.flags) for pattern in patterns]


def secret_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each secret; spans may overlap."""
    for pattern in (_PRIVATE_KEY_BLOCK, _URL_CREDENTIALS, _PREFIXED_TOKEN, _HEX_STRING, *_library()):
        yield from (match.span() for match in pattern.finditer(text))
    yield from (match.span(1) for match in _JWT.finditer(text))
    for match in _KEY_LIKE.finditer(text):
        if _is_key(match[2], has_name=match[1] is not None):
            yield match.span()
    for match in _BEARER_TOKEN.finditer(text):
        if _is_credential(match[2], has_name=match[1].lower() == "bearer"):
            yield match.span(2)
    for match in _ASSIGNED_SECRET.finditer(text):
        if _is_value(match[1]):
            yield match.span(1)
    for match in _RANDOM_STRING.finditer(text):
        if _is_random(match[0]):
            yield match.span()


def _classes(text: str) -> set[str]:
    return {_class(sign) for sign in text}


def _class(sign: str) -> str:
    return "0" if sign.isdigit() else "a" if sign.islower() else "A" if sign.isupper() else "."


def _changes(text: str) -> float:
    """Share of neighbors of different classes (small, capital, digit, other); about .6 in random text."""
    return sum(_class(first) != _class(second) for first, second in pairwise(text)) / len(text)


def _entropy(text: str) -> float:
    return -sum(count / len(text) * math.log2(count / len(text)) for count in Counter(text).values())


def _is_random(text: str) -> bool:
    words = sum(_WORD.fullmatch(part) is not None for part in re.split(r"[/_+-]", text))
    if words > 1 or _UUID.search(text):
        return False
    return {"0", "a", "A"} <= _classes(text) and _changes(text) >= 0.4 and _entropy(text) >= 3.7


def _is_key(text: str, *, has_name: bool) -> bool:
    classes = _classes(text)
    return "0" in classes and (has_name or {"a", "A"} <= classes or _changes(text) >= 0.25)


def _is_credential(text: str, *, has_name: bool) -> bool:
    changes = _changes(text)
    return text.endswith("=") or changes >= 0.4 or ("0" in _classes(text) and (has_name or changes >= 0.15))


def _is_value(text: str) -> bool:
    classes = _classes(text)
    return "0" in classes and bool(classes & {"a", "A"}) and not _PLACEHOLDER.match(text) and "/" not in text[:1]
