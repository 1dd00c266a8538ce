"""Every filter drops what it should and keeps the rest."""

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.prepare.filters import PATTERNS
from helpers.cleaning import cleaned, reasons, texts_of
from helpers.runs import read


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("test test", "test string"),
        ("asdfgh", "test string"),
        ("  ", "empty"),
        ("12345 67", "no words"),
        ('{"error": {"code": 502, "message": "bad gateway"}}', "code"),
        ("def handler(event):\n    return event", "code"),
        ("curl -X POST https://api.example.com/v1/events -d '{}'", "code"),
        ('Traceback (most recent call last):\n  File "a.py", line 3, in <module>', "stack trace"),
        ("java.lang.IllegalStateException: closed\n\tat com.example.Relay.send(Relay.java:41)", "stack trace"),
        ("2026-03-01T10:11:12Z ERROR relay: delivery failed attempt=5", "log line"),
    ],
)
def test_noise_is_named(run: Run, text: str, reason: str) -> None:
    cleaned(run, [text, "how do i rotate a signing secret"], noise=True)
    assert texts_of(run) == ["how do i rotate a signing secret"]
    assert list(reasons(run).values()) == [reason]


@pytest.mark.parametrize(
    "text",
    [
        "how do i test a webhook before going live",
        "error 502 when the destination is slow",
        "what does PEL-1042 mean?",
        "import users from a csv file",
        "select all rows in the table view",
        "get api key",
        "日本語で設定する方法",
        "const field in schema is rejected, why",
    ],
)
def test_questions_are_not_noise(run: Run, text: str) -> None:
    cleaned(run, [text], noise=True)
    assert texts_of(run) == [text]


def test_every_noise_pattern_compiles_and_has_a_case() -> None:
    covered = {"test string", "empty", "no words", "code", "stack trace", "log line"}
    assert set(PATTERNS) == covered


def test_length_keeps_the_percentiles_themselves(run: Run) -> None:
    texts = [" ".join(["word"] * n) for n in range(1, 10)]
    cleaned(run, texts, min_percentile=25, max_percentile=75)
    assert [row["n_words"] for row in read(run, "cleaned_queries")] == [3, 4, 5, 6, 7]
    assert sorted(map(str, reasons(run).values())) == ["too long"] * 2 + ["too short"] * 2


def test_length_is_measured_within_the_tenant(run: Run) -> None:
    texts = ["a b", "a b", "a b", *["a b c d e f g h"] * 3]
    cleaned(run, texts, ["x"] * 3 + ["y"] * 3, min_percentile=25, max_percentile=75)
    assert len(read(run, "cleaned_queries")) == 6


def test_language_needs_a_likely_other_one(run: Run) -> None:
    texts = [
        "how do i reset my password",
        "wie setze ich mein Passwort für die Anwendung zurück?",
        "パスワードを再設定する方法",
    ]
    cleaned(run, texts, language="en")
    assert texts_of(run) == ["how do i reset my password"]
    assert set(reasons(run).values()) == {"language de", "language ja"}


def test_duplicates_name_who_stands_for_them(run: Run) -> None:
    cleaned(run, ["Reset  my password", "reset my PASSWORD", "delete a route"], deduplicate=True)
    kept = {row["text"]: row["n_represented"] for row in read(run, "cleaned_queries")}
    assert kept == {"Reset  my password": 2, "delete a route": 1}
    assert [(row["id"], row["represented_by"], row["stage"]) for row in read(run, "rejects")] == [
        ("q00001", "q00000", "clean.duplicates")
    ]


def test_duplicates_stay_within_the_tenant(run: Run) -> None:
    cleaned(run, ["same text"] * 2, ["a", "b"], deduplicate=True)
    assert len(read(run, "cleaned_queries")) == 2
