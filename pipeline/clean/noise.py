"""Queries that nobody asked as a question: empty, code, stack traces, log lines, test strings."""

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.clean.sifted import Sifted
from schemas.settings import CleanSettings

# RE2 patterns, tried in this order; the first that matches names the reason.
PATTERNS = {
    "empty": r"^\s*$",
    "stack trace": (
        r"Traceback \(most recent call last\)|(?m:^\s+at [\w$.<>]+\(|^\s*File \".+\", line \d+)"
        r"|\b[\w.]+(?:Exception|Error): .*\n\s+at |goroutine \d+ \["
    ),
    "log line": (
        r"^\s*\[?\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}.*\b(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\b"
        r"|^\s*(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\b\s*[\[:].*(?:=|\d{2}:\d{2}:\d{2})"
    ),
    "code": (
        r"^\s*[{\[]\s*\"[^\"]+\"\s*[:,]|</?[a-zA-Z][\w-]*(?:\s+[\w-]+=\"[^\"]*\")*\s*/?>.*</"
        r"|[;{}]\s*\n.*[;{}]|(?m:^\s*(?:def|class|import|from|function|const|let|var|public|SELECT|INSERT|UPDATE)\b.*[({;=*])"
        r"|^\s*(?:curl|kubectl|docker|npm|pip|git|sudo|terraform)\s+(?:-|\w+\s+-|install\b|run\b|get\b|apply\b)"
    ),
    "test string": (
        r"(?i)^\W*(?:(?:test|testing|tester|tests?\d*|asdf\w*|qwert\w*|foo|bar|foobar|lorem ipsum.*|hello|hallo|hi|hey"
        r"|xxx+|abc\w?|blah|ignore|please ignore|dummy|1234?5?6?\d*)\b\W*)+$"
    ),
    "no words": r"^[^\pL]*$",
}


def drop_noise(queries: pa.Table, settings: CleanSettings) -> Sifted:
    """Drop queries that are no natural-language question (DevRev-Search, 3.1, "noise")."""
    if not settings.noise:
        return Sifted.all_kept(queries)
    text = queries["text"]
    reasons = pa.nulls(queries.num_rows, pa.string())
    for reason, pattern in reversed(PATTERNS.items()):
        reasons = pc.if_else(pc.match_substring_regex(text, pattern), reason, reasons)
    return Sifted.by_reason(queries, reasons)
