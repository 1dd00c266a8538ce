"""The filter of rows that are not queries: code, stack traces, log lines, test strings (DevRev-Search, 3.1, "noise").

A row that quotes such text and asks something about it is kept.
"""

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.prepare.filters import FilterResult, flat
from darklode.schemas.settings import CleanSettings

_LEVEL = r"(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\b"
_STATEMENT = (
    r"def\s+\w+\(|class\s+\w+(?:\(.*\))?\s*[:{]|function\s*\w*\(|(?:const|let|var)\s+[\w{},\s]+=|public\s+(?:static|class|void)\b"
    r"|from\s+[\w.]+\s+import\b|import\s+[\w.*{}, ]+\s+from\s+[\"']|import\s+[\w.*]+\s*;"
    r"|SELECT\b.*\bFROM\b|INSERT\s+INTO\b|UPDATE\s+\w+\s+SET\b"
)

_NAME = r"[\pL_$][\w$]*"
_PATH = rf"{_NAME}(?:(?:\.|::|->){_NAME}|\[[^\]]*\])*"
_TYPES = "const let var final int str string String float double bool boolean auto char long".split()
_KEYWORDS = [*_TYPES, *"return await raise new yield if elif else for in while with except as lambda".split()]
_ARGUMENT = r"=|[\"'\[{]|\w\(|\)\s*\.\s*\w+\("

ONE_LINE_CODE = (
    # name = value, spaces around the sign; `num_cpus=4` may be the name of a setting that somebody looks for
    rf"^\s*(?:(?:{'|'.join(_TYPES)})\s+)?{_PATH}(?:\s*,\s*{_PATH})*(?:\s*:\s*[\w.\[\], |]+)?\s+[-+*/|&%]?=\s+"
    r"(?:-?[\w.]+\s*;?\s*|[^?]*[(\[{\"'][^?]*)$"
    # a call with a keyword, a literal, a nested or a further call; `df.groupby()` may be a name, too
    rf"|^\s*(?:(?:await|return|raise|yield|new|>>>)\s+|@)?{_PATH}\([^?]*(?:{_ARGUMENT})[^?]*[)\]}}]\s*[;:,{{]?\s*$"
    r"|^[^?]*[(=\[][^?]*;\s*$"
    r"|^\s*(?:if|elif|for|while|with|except)\b[^?]*[(_=\[][^?]*:\s*$"
    r"|^\s*[\"'][\w.-]+[\"']\s*:\s*[^?]*$"
)
"""One-line code: an assignment, a call, a statement with a semicolon, the start of a block, or a key and value."""

QUOTED_OR_KEYWORD = rf"\"[^\"]*\"|'[^']*'|\b(?:{'|'.join(_KEYWORDS)})\b"
PROSE = r"[\pL]{2,}\s+[\pL]{2,}"
"""Two adjacent words, which a line of code does not have outside of strings and keywords."""

# RE2 patterns, tried in this order; the first that matches names the reason.
NOISE_PATTERNS = {
    "empty": r"^\s*$",
    "stack trace": (
        r"Traceback \(most recent call last\)|(?m:^\s+at [\w$.<>]+\(|^\s*File \".+\", line \d+)"
        r"|\b[\w.]+(?:Exception|Error): .*\n\s+at |goroutine \d+ \["
    ),
    "log line": (
        rf"^\s*\[?\d{{4}}-\d{{2}}-\d{{2}}[T ]\d{{2}}:\d{{2}}:\d{{2}}.*\b{_LEVEL}"
        rf"|^\s*{_LEVEL}\s*[\[:].*(?:=|\d{{2}}:\d{{2}}:\d{{2}})"
    ),
    "code": (
        r"^\s*[{\[]\s*\"[^\"]+\"\s*[:,]|</?[a-zA-Z][\w-]*(?:\s+[\w-]+=\"[^\"]*\")*\s*/?>.*</"
        rf"|[;{{}}]\s*\n.*[;{{}}]|(?m:^\s*(?:{_STATEMENT}))"
        r"|^\s*(?:curl|kubectl|docker|npm|pip|git|sudo|terraform)\s(?:.*\s)?(?:--?[a-zA-Z]|[|&<>]+\s|https?:)"
    ),
    "cut off": (
        r"(?i)^(?:[^\n.?!]|[.?!]\S)*\b(?:following|below|this|these|here|i|i'm|i've|we|my)\b(?:[^\n.?!]|[.?!]\S)*[:：]\s*$"
    ),
    "test string": (
        r"(?i)^[^\pL\pN]*(?:(?:test|testing|tester|tests?\d*|asdf\w*|qwert\w*|foo|bar|foobar|lorem ipsum.*|hello|hallo"
        r"|hi|hey|xxx+|abc\w?|blah|ignore|please ignore|dummy|1234?5?6?\d*)\b[^\pL\pN]*)+$"
    ),
    "no words": r"^[^\pL]*$",
}

QUOTED_LINES = {
    "stack trace": r"(?m)^(?:\s.*|Traceback.*|Caused by.*|[\w.]+(?:Error|Exception)\b.*|goroutine.*)$",
    "log line": rf"(?m)^.*\b{_LEVEL}.*$",
}
"""Lines written by a program, by reason; questions in them, such as `did you mean 'x'?`, are ignored."""

QUESTION_PATTERN = (
    r"(?i)[\pL\pN)\]}\"'`’”»][?？؟]+[\"')\]]?(?:\s+[^\s:=;{}]|\s*$)|(?m:[\pL\pN)\]}\"'`’”»]\s[?？؟]+\s*$)"
    r"|\bhow (?:do|does|did|to|can|could|should|would|is|are|come|much|many)\b"
    r"|\bwhy (?:is|are|am|do|does|did|can|would|isn't|aren't|don't|doesn't|won't)\b"
    r"|\bwhat (?:is|are|do|does|did|should|would|causes?|happens)\b"
    r"|\b(?:can|could|would) (?:i|we|you|someone|somebody|anyone|anybody)\b|\b(?:does|has) any(?:one|body)\b"
    r"|\bis (?:there|it possible)\b|\b(?:please|pls) (?:help|explain|advise)\b|\bany (?:ideas?|help|suggestions?)\b"
)
"""A question mark at the end of a word or line, or the start of an English question."""

REASONS_KEPT_WITH_QUESTION = ("stack trace", "log line", "code", "cut off")
"""Reasons that do not apply to rows with a question: somebody quotes such text and asks about it."""


def drop_noise(queries: pa.Table, settings: CleanSettings) -> FilterResult:
    """Drop rows that are not queries; rows that quote code or logs and ask about it are kept."""
    if not settings.noise:
        return FilterResult.all_kept(queries)
    text = flat(queries["text"])
    reasons = pa.nulls(queries.num_rows, pa.string())
    for reason in reversed(NOISE_PATTERNS):  # reversed, so that the first matching pattern gives the reason
        reasons = pc.if_else(_is_noise(reason, text), reason, reasons)
    return FilterResult.by_reason(queries, reasons)


def _is_noise(reason: str, text: pa.StringArray) -> pa.BooleanArray:
    """Whether each text is noise for this reason."""
    matches = pc.match_substring_regex(text, NOISE_PATTERNS[reason])
    if reason == "code":
        matches = pc.or_(matches, _is_one_line_code(text))
    if reason not in REASONS_KEPT_WITH_QUESTION or not matches.true_count:
        return matches
    return pc.replace_with_mask(matches, matches, pc.invert(_has_question(reason, text.filter(matches))))


def _is_one_line_code(text: pa.StringArray) -> pa.BooleanArray:
    """Whether each text is one line of code without prose."""
    prose = pc.match_substring_regex(pc.replace_substring_regex(text, QUOTED_OR_KEYWORD, ";"), PROSE)
    return pc.and_not(pc.match_substring_regex(text, ONE_LINE_CODE), prose)


def _has_question(reason: str, text: pa.StringArray) -> pa.BooleanArray:
    """Whether each text has a question outside of the lines in `QUOTED_LINES`."""
    unquoted_text = pc.replace_substring_regex(text, QUOTED_LINES[reason], "") if reason in QUOTED_LINES else text
    return pc.match_substring_regex(unquoted_text, QUESTION_PATTERN)
