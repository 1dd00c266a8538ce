"""Cleaning: every filter drops what it should, keeps the rest, and nothing vanishes."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import execute, put, read
from pipeline.artifacts import Manifest, Run
from pipeline.clean import CLEAN, clean
from pipeline.clean.diversity import n_clusters
from pipeline.clean.noise import PATTERNS
from pipeline.errors import InputError
from pipeline.personal_data import mask
from schemas.settings import CleanSettings
from schemas.tables import RAW_QUERIES

OPEN = {
    "noise": False,
    "min_percentile": 0,
    "max_percentile": 100,
    "language": None,
    "deduplicate": False,
    "per_cluster": 0,
}


def raw(texts: list[str], tenants: list[str] | None = None) -> pa.Table:
    n = len(texts)
    ids = [f"q{i:05d}" for i in range(n)]
    return RAW_QUERIES.rows({"tenant": tenants or ["default"] * n, "query_id": ids, "text": texts, "count": [1] * n})


def cleaned(run: Run, texts: list[str], tenants: list[str] | None = None, **options: object) -> Manifest:
    put(run, "raw_queries", raw(texts, tenants))
    chosen = CleanSettings.model_validate(OPEN | options)
    return execute(run, CLEAN, lambda tables, output: clean(tables, output, chosen, seed=1))


def texts_of(run: Run) -> list[object]:
    return [row["text"] for row in read(run, "cleaned_queries")]


def reasons(run: Run) -> dict[object, object]:
    return {row["payload"]: row["reason"] for row in read(run, "rejects")}


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


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("mail me at jo.doe+x@mail.example.com please", "mail me at [email] please"),
        ("key pk_test_51HxxABCDEFGHIJ fails", "key [token] fails"),
        ("blocked ip 203.0.113.77 again", "blocked ip [ip] again"),
        ("card 4242 4242 4242 4242 declined", "card [card] declined"),
        ("call +49 (0)30 1234 567 or 555-123-4567", "call [phone] or [phone]"),
        ("error 404 on version 2.10.1 since 2026-03-01", "error 404 on version 2.10.1 since 2026-03-01"),
    ],
)
def test_personal_data_is_masked(text: str, masked: str) -> None:
    assert mask(pa.chunked_array([[text]])).to_pylist() == [masked]


def test_masking_reaches_rejects_too(run: Run) -> None:
    cleaned(
        run,
        ["test jo@example.com", "a b c d e f g h jo@example.com", "how are plans billed"],
        noise=True,
        max_percentile=60,
    )
    written = b"".join(
        path.read_bytes() for path in Path(run.store.url, "tables").rglob("*.parquet") if "given" not in path.name
    )
    assert b"jo@example" not in written
    assert all("jo@" not in str(row) for row in read(run, "rejects") + read(run, "cleaned_queries"))


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


def test_sampling_keeps_one_of_each_cluster_and_credits_it(run: Run) -> None:
    texts = ["rotate the signing secret", "rotating a signing secret", "rotate signing secrets"]
    texts += ["invite a team member", "invite new team members", "inviting a team member"]
    cleaned(run, texts, clusters=2, per_cluster=1)
    kept = read(run, "cleaned_queries")
    assert [row["n_represented"] for row in kept] == [3, 3]
    ids = {row["query_id"] for row in kept}
    assert {row["represented_by"] for row in read(run, "rejects")} == ids
    topic = {row["query_id"]: str(row["text"])[:5] for row in kept}
    assert all(topic[row["represented_by"]] == str(row["payload"])[:5] for row in read(run, "rejects"))


def test_a_duplicate_of_a_query_that_sampling_drops_names_the_one_kept(run: Run) -> None:
    odd = "how would I go about replacing what signs our events"
    texts = [odd, odd.upper(), "rotate the signing secret", "rotate signing secret", "rotate signing secrets"]
    cleaned(run, texts, deduplicate=True, clusters=1, per_cluster=1)
    (kept,) = read(run, "cleaned_queries")
    gone = read(run, "rejects")
    assert {row["stage"] for row in gone} == {"clean.duplicates", "clean.diversity"}
    assert {row["represented_by"] for row in gone} == {kept["query_id"]}
    assert kept["query_id"] not in {"q00000", "q00001"}
    assert kept["n_represented"] == 5


def test_keep_all_describes_and_drops_nothing(run: Run) -> None:
    texts = ["test", "reset password", "reset password", "ein deutscher Satz über Passwörter und Konten", "x" * 400]
    cleaned(run, texts, keep_all=True, noise=True, language="en", deduplicate=True, per_cluster=1, clusters=2)
    kept = read(run, "cleaned_queries")
    assert [row["text"] for row in kept] == texts
    assert all(row["language"] for row in kept)
    assert [row["n_represented"] for row in kept] == [1] * 5


def test_nothing_left_is_an_error(run: Run) -> None:
    with pytest.raises(InputError, match="dropped every query"):
        cleaned(run, ["test", "asdf"], noise=True)


def test_funnel_names_the_steps(run: Run) -> None:
    manifest = cleaned(run, ["test", "reset my password", "reset my password"], noise=True, deduplicate=True)
    assert [step.step for step in manifest.funnel] == [
        "clean.noise",
        "clean.length",
        "clean.language",
        "clean.duplicates",
        "clean.diversity",
    ]
    assert manifest.funnel[3].dropped == {"duplicate": 1}


@pytest.mark.parametrize(("n", "most"), [(1, 1), (100, 100), (1_000, 400), (1_000_000, 10_000)])
def test_clusters_suit_the_log(n: int, most: int) -> None:
    assert 1 <= n_clusters(n, CleanSettings()) <= most


WORDS = st.sampled_from("reset rotate secret webhook retry the a how to test 日本 user@example.com { } plan".split())
QUERY = st.lists(WORDS, max_size=8).map(" ".join)


@settings(max_examples=25, deadline=None)
@given(queries=st.lists(st.tuples(QUERY, st.sampled_from("ab")), min_size=1, max_size=40))
def test_rows_in_are_rows_out_and_rejects(
    queries: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = Run(str(tmp_path_factory.mktemp("run")))
    texts, tenants = [text for text, _ in queries], [tenant for _, tenant in queries]
    try:
        cleaned(
            run,
            texts,
            tenants,
            noise=True,
            min_percentile=25,
            max_percentile=75,
            language="en",
            deduplicate=True,
            per_cluster=1,
        )
    except InputError:
        return
    kept, gone = read(run, "cleaned_queries"), read(run, "rejects") if "rejects" in run.parts() else []
    assert {row["query_id"] for row in kept} | {row["id"] for row in gone} == {f"q{i:05d}" for i in range(len(texts))}
    assert len(kept) + len(gone) == len(texts)
    tenant_of = {row["query_id"]: row["tenant"] for row in kept}
    assert all(tenant_of[row["represented_by"]] == row["tenant"] for row in gone if row["represented_by"])
    represented = sum(int(str(row["n_represented"])) for row in kept)
    lent = sum(row["represented_by"] is not None for row in gone)
    assert represented == len(kept) + lent
