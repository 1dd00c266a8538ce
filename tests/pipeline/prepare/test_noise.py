"""What is no query is named, and a row that asks something stays."""

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.prepare.noise import PATTERNS
from helpers.cleaning import cleaned, reasons, texts_of

NOISE = [
    ("test test", "test string"),
    ("asdfgh", "test string"),
    ("  ", "empty"),
    ("12345 67", "no words"),
    ('{"error": {"code": 502, "message": "bad gateway"}}', "code"),
    ("def handler(event):\n    return event", "code"),
    ("from ray import serve", "code"),
    ("SELECT name FROM users WHERE id = ?", "code"),
    ("curl -X POST https://api.example.com/v1/events -d '{}'", "code"),
    ("kubectl -n pelagia get pods\nNAME   READY", "code"),
    ('Traceback (most recent call last):\n  File "a.py", line 3, in <module>', "stack trace"),
    ("Traceback (most recent call last):\n  File \"a.py\", line 3\nNameError: Did you mean: 'food'?", "stack trace"),
    ("java.lang.IllegalStateException: closed\n\tat com.example.Relay.send(Relay.java:41)", "stack trace"),
    ("2026-03-01T10:11:12Z ERROR relay: delivery failed attempt=5", "log line"),
    ("2026-03-01T10:11:12Z ERROR docker: no connection. Is the docker daemon running?", "log line"),
    ("I am receiving the following error:", "cut off"),
    ("Here is my configuration on version 2.9:\n", "cut off"),
]

QUERIES = [
    "how do i test a webhook before going live",
    "error 502 when the destination is slow",
    "what does PEL-1042 mean?",
    "import users from a csv file",
    "import users (and their roles) from a csv file",
    "let me know when a deployment (canary) is done",
    "select all rows in the table view",
    "get api key",
    "terraform apply 429",
    "docker run fails on windows",
    "日本語で設定する方法",
    "hi, 如何轮换签名密钥",
    "const field in schema is rejected, why",
    "from the action space Tuple(Box(-1.0, 1.0, (3,), float32), Discrete(2)) I get nan. can you explain why?",
    'What does {"error": {"code": 502}} mean?',
    'how to read {"error": {"code": 502}} in the console',
    'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\nWhy does this happen?',
    "2026-03-01T10:11:12Z ERROR relay: delivery failed\nany idea what to do",
    "How can I fix the following error:",
    "cluster fails to start with this error: out of memory",
    "install error:",
]


@pytest.mark.parametrize(("text", "reason"), NOISE)
def test_noise_is_named(run: Run, text: str, reason: str) -> None:
    cleaned(run, [text, "how do i rotate a signing secret"], noise=True)
    assert texts_of(run) == ["how do i rotate a signing secret"]
    assert list(reasons(run).values()) == [reason]


@pytest.mark.parametrize("text", QUERIES)
def test_queries_are_not_noise(run: Run, text: str) -> None:
    cleaned(run, [text], noise=True)
    assert texts_of(run) == [text]


def test_every_pattern_has_a_case() -> None:
    assert set(PATTERNS) == {reason for _, reason in NOISE}
