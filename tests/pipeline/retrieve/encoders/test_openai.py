"""The endpoint encoder against a server of real sockets that fails in every way known."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import numpy as np
import pytest
from pydantic import JsonValue

from darklode.pipeline.base.errors import DarklodeError, MissingPart, SettingsError
from darklode.pipeline.base.remote import call_errors, client, replicas
from darklode.pipeline.base.remote.tokens import estimate_tokens, fill_batches, truncate
from darklode.pipeline.retrieve.encoders.kinds.openai import OpenAISettings as Settings
from darklode.pipeline.retrieve.encoders.openai import OpenAIEncoder
from darklode.pipeline.retrieve.encoders.port import Vectors
from helpers.fake_openai import FAULTS, FakeOpenAI, at_random, scripted, unit_vectors

TEXTS = [f"text number {number} " + "of many words " * (number % 7) for number in range(60)]
KEY = "sk-very-secret"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(client, "FIRST_WAIT", 0.002)
    monkeypatch.setattr(client, "LONGEST_WAIT", 0.02)
    monkeypatch.setattr(replicas, "FIRST_PAUSE", 0.01)
    monkeypatch.setenv("TEST_KEY", KEY)


@pytest.fixture
def server() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as fake:
        yield fake


def settings(url: str, **given: JsonValue) -> Settings:
    values: dict[str, JsonValue] = {"kind": "openai", "model": "fake-1", "base_url": url, "api_key_env": "TEST_KEY"}
    return Settings.model_validate(values | {"batch_size": 4, "timeout": 2, "retry_timeout": 10} | given)


def take(batches: Iterator[Vectors], handed: list[int]) -> None:
    """Note the place of each text handed on, as a cache would."""
    for places, _ in batches:
        handed += places.tolist()


def test_vectors_are_the_texts_in_order_and_of_length_one(server: FakeOpenAI) -> None:
    server.shuffled = True
    encoder = OpenAIEncoder(settings(server.url))
    assert np.allclose(encoder.encode_documents(TEXTS), unit_vectors(TEXTS, 8), atol=1e-6)
    assert encoder.dimensions == 8
    assert server.requests[0]["encoding_format"] == "base64"
    assert "dimensions" not in server.requests[0]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_prompts_parameters_and_dimensions_are_sent(server: FakeOpenAI) -> None:
    encoder = OpenAIEncoder(
        settings(
            server.url,
            dimensions=5,
            query_prompt="query: ",
            document_prompt="passage: ",
            query_extra_body={"input_type": "search_query"},
            document_extra_body={"input_type": "search_document"},
        )
    )
    assert encoder.dimensions == 5
    assert not server.requests
    assert np.allclose(encoder.encode_queries(["tea"]), unit_vectors(["query: tea"], 5), atol=1e-6)
    assert np.allclose(encoder.encode_documents(["tea"]), unit_vectors(["passage: tea"], 5), atol=1e-6)
    assert [body["input_type"] for body in server.requests] == ["search_query", "search_document"]
    assert [body["dimensions"] for body in server.requests] == [5, 5]


def test_a_server_that_answers_with_lists_of_numbers_is_understood(server: FakeOpenAI) -> None:
    encoder = OpenAIEncoder(settings(server.url, document_extra_body={"encoding_format": "float"}))
    assert np.allclose(encoder.encode_documents(TEXTS), unit_vectors(TEXTS, 8), atol=1e-6)
    assert server.requests[0]["encoding_format"] == "float"


def test_blank_texts_are_not_sent_and_are_zero(server: FakeOpenAI) -> None:
    vectors = OpenAIEncoder(settings(server.url, document_prompt="passage: ")).encode_documents(["", "tea", " \n"])
    assert server.embedded == ["passage: tea"]
    assert np.linalg.norm(vectors, axis=1).round(5).tolist() == [0, 1, 0]


def test_no_texts_give_no_rows(server: FakeOpenAI) -> None:
    assert OpenAIEncoder(settings(server.url, dimensions=8)).encode_queries([]).shape == (0, 8)
    assert not server.requests


def test_batches_keep_within_texts_and_tokens(server: FakeOpenAI) -> None:
    OpenAIEncoder(settings(server.url, batch_size=5, max_batch_tokens=100)).encode_documents(TEXTS)
    sizes = [(len(body["input"]), sum(map(estimate_tokens, body["input"]))) for body in server.requests]
    assert max(texts for texts, _ in sizes) == 5
    assert all(tokens <= 100 or texts == 1 for texts, tokens in sizes)
    assert sorted(server.embedded) == sorted(TEXTS)


@pytest.mark.parametrize("most", [1, 3])
def test_requests_under_way_are_bounded(server: FakeOpenAI, most: int) -> None:
    server.delay = 0.02
    OpenAIEncoder(settings(server.url, max_concurrency=most)).encode_documents(TEXTS)
    assert server.most_at_once == most


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_passes_and_no_text_is_embedded_twice(server: FakeOpenAI, fault: str) -> None:
    server.script = scripted(n1=fault, n2=fault, n5=fault)
    encoder = OpenAIEncoder(settings(server.url, timeout=1 if fault == "hang" else 30, dimensions=8))
    assert np.allclose(encoder.encode_documents(TEXTS), unit_vectors(TEXTS, 8), atol=1e-6)
    assert sorted(server.embedded) == sorted(TEXTS)
    assert len(server.requests) == 15 + 3


def test_many_random_faults_change_nothing() -> None:
    faults = tuple(fault for fault in FAULTS if fault != "hang")
    with FakeOpenAI(script=at_random(3, 0.35, faults)) as server:
        vectors = OpenAIEncoder(settings(server.url, batch_size=1, dimensions=8)).encode_documents(TEXTS)
        assert len(server.requests) > len(TEXTS) + 15
        assert sorted(server.embedded) == sorted(TEXTS)
    assert np.allclose(vectors, unit_vectors(TEXTS, 8), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("header", ["0.4", "date", "soon"])
def test_retry_after_is_the_least_that_is_waited(server: FakeOpenAI, header: str) -> None:
    server.script = scripted(n1="429 retry-after")
    server.retry_after = format_datetime(datetime.now(UTC) + timedelta(seconds=2)) if header == "date" else header
    began = time.monotonic()
    OpenAIEncoder(settings(server.url)).encode_queries(["tea"])
    waited = time.monotonic() - began
    assert (waited > 0.4) == (header != "soon")
    assert waited < 4


def test_retry_after_is_capped() -> None:
    assert call_errors.parse_retry_after("1e9") == call_errors.MAX_RETRY_AFTER
    assert call_errors.parse_retry_after(format_datetime(datetime.now(UTC) - timedelta(hours=1))) == 0
    assert call_errors.parse_retry_after("nan") is None


def test_a_rate_limit_spaces_requests(server: FakeOpenAI) -> None:
    began = time.monotonic()
    OpenAIEncoder(settings(server.url, requests_per_minute=200)).encode_documents(TEXTS[:16])
    assert len(server.times) == 4
    assert server.times[-1] - began > 3 * 60 / 200


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("html", "is not JSON"),
        ("malformed", "is not JSON"),
        ("empty object", "no list of vectors"),
        ("too few", "holds 3 vectors for 4 texts"),
        ("dimension", "has 7 dimensions where 8 are expected"),
        ("nan", "a NaN or an infinity"),
        ("zero", "only zeros"),
    ],
)
def test_a_reply_that_stays_wrong_names_the_text_and_hands_nothing_on(
    server: FakeOpenAI, fault: str, reason: str
) -> None:
    server.script = lambda number: fault if "text number 7 " in str(server.requests[number - 1]["input"]) else None
    ids = [f"chunk-{number}" for number in range(len(TEXTS))]
    handed: list[int] = []
    with pytest.raises(DarklodeError, match=reason) as raised:
        take(OpenAIEncoder(settings(server.url, dimensions=8)).encode_batches(TEXTS, ids=ids), handed)
    named = "chunk-4 " if fault in {"html", "malformed", "empty object"} else "chunk-7 "
    assert f"text {named}" in str(raised.value)
    assert not set(handed) & {4, 5, 6, 7}
    assert set(server.embedded) == {TEXTS[place] for place in handed}


def test_it_gives_up_after_so_many_seconds_of_failing(server: FakeOpenAI) -> None:
    server.script = lambda number: "503" if number > 3 else None
    encoder = OpenAIEncoder(settings(server.url, retry_timeout=0.3, max_concurrency=1))
    handed: list[int] = []
    began = time.monotonic()
    with pytest.raises(DarklodeError, match=r"answered 503\. No answer for 0\.3 s \(encoder\.retry_timeout\)"):
        take(encoder.encode_batches(TEXTS), handed)
    assert len(handed) == 12
    assert 0.3 <= time.monotonic() - began < 3


@pytest.mark.slow
def test_one_failure_for_good_ends_the_others_trying(server: FakeOpenAI) -> None:
    # The others get no reply before the failure for good: a server that only fails would count as down, and its pauses
    # could outlast `retry_timeout`.
    server.script = lambda number: "nan" if "text number 0 " in str(server.requests[number - 1]["input"]) else "hang"
    server.hang_seconds = 1.5
    with pytest.raises(DarklodeError, match="NaN"):
        OpenAIEncoder(settings(server.url, retry_timeout=60, max_concurrency=16)).encode_documents(TEXTS)
    inputs = [str(request["input"]) for request in server.requests]
    assert sorted(inputs.count(text) for text in set(inputs)) == [1] * 14 + [6]
    assert not server.embedded


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (400, DarklodeError, "lower max_tokens"),
        (401, MissingPart, "the key in TEST_KEY"),
        (403, MissingPart, "the key in TEST_KEY"),
        (404, MissingPart, "base_url and the model or index"),
    ],
)
def test_a_refusal_fails_at_once_and_keeps_the_key_secret(
    server: FakeOpenAI, status: int, kind: type[Exception], said: str
) -> None:
    server.status, server.message = status, f"bad request with {KEY}"
    with pytest.raises(kind, match=said) as raised:
        OpenAIEncoder(settings(server.url, max_concurrency=1)).encode_documents(TEXTS)
    assert len(server.requests) == 1
    assert KEY not in str(raised.value)
    assert raised.value.__cause__ is None


def test_nobody_listening_is_said_in_the_end() -> None:
    with FakeOpenAI() as server:
        url = server.url
    with pytest.raises(DarklodeError, match="cannot be reached"):
        OpenAIEncoder(settings(url, retry_timeout=0.05)).encode_queries(["tea"])


def test_spending_stops_before_the_limit_and_keeps_what_was_paid_for(server: FakeOpenAI) -> None:
    encoder = OpenAIEncoder(settings(server.url, price_per_million=1e6, spending_limit=400, max_concurrency=3))
    handed: list[int] = []
    with pytest.raises(DarklodeError, match="spending_limit 400 would be exceeded"):
        take(encoder.encode_batches(TEXTS), handed)
    assert {TEXTS[place] for place in handed} == set(server.embedded)
    billed = sum(len(text) // 4 + 1 for text in server.embedded)
    assert encoder.cost == billed
    assert 250 < billed <= 400


def test_a_lost_reply_counts_as_spent_and_a_refused_request_does_not(server: FakeOpenAI) -> None:
    server.script, server.usage = scripted(n1="500", n2="truncated"), None
    encoder = OpenAIEncoder(settings(server.url))
    encoder.encode_queries(["tea"])
    assert encoder.counters.prompt_tokens == 2 * estimate_tokens("tea")


def test_every_batch_comes_with_its_cost(server: FakeOpenAI) -> None:
    encoder = OpenAIEncoder(settings(server.url, price_per_million=2e6))
    told = [(len(places), encoder.cost) for places, _ in encoder.encode_batches(TEXTS)]
    assert sum(texts for texts, _ in told) == len(TEXTS)
    assert told[-1][1] == 2 * sum(len(text) // 4 + 1 for text in TEXTS)


def test_a_closed_iterator_cancels_what_is_under_way(server: FakeOpenAI) -> None:
    server.script = lambda number: None if number == 1 else "hang"
    batches = OpenAIEncoder(settings(server.url, timeout=60, max_concurrency=2)).encode_batches(TEXTS)
    next(batches)
    began = time.monotonic()
    batches.close()  # type: ignore[attr-defined]
    assert time.monotonic() - began < 2


def test_it_works_inside_a_running_loop(server: FakeOpenAI) -> None:
    async def inside() -> int:
        return len(OpenAIEncoder(settings(server.url)).encode_queries(["tea"]))

    assert asyncio.run(inside()) == 1


def test_a_missing_key_is_named(server: FakeOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_KEY")
    with pytest.raises(MissingPart, match="environment variable TEST_KEY"):
        OpenAIEncoder(settings(server.url))


def test_without_a_key_setting_none_is_sent(server: FakeOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    OpenAIEncoder(settings(server.url, api_key_env="")).encode_queries(["tea"])
    assert "authorization" not in server.headers[0]


@pytest.mark.parametrize("url", ["https://me:secret@host/v1", "https://host/v1?key=secret", "ftp://host", "host/v1"])
def test_an_address_that_holds_secrets_or_is_none_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="base_url") as raised:
        OpenAIEncoder(settings(url))
    assert "secret" not in str(raised.value)


def test_a_spending_limit_needs_a_price(server: FakeOpenAI) -> None:
    with pytest.raises(SettingsError, match="price_per_million"):
        OpenAIEncoder(settings(server.url, spending_limit=1))


@pytest.mark.parametrize(
    "change",
    [
        {"model": "fake-2"},
        {"base_url": "http://other/v1"},
        {"dimensions": 4},
        {"max_input_tokens": 9},
        {"query_prompt": "q"},
        {"document_prompt": "q"},
        {"query_extra_body": {"a": 1}},
        {"document_extra_body": {"a": 1}},
    ],
)
def test_the_id_names_all_that_changes_a_vector(change: dict[str, JsonValue]) -> None:
    assert settings("http://host/v1", **change).encoder_id() != settings("http://host/v1").encoder_id()


def test_the_id_leaves_out_what_does_not() -> None:
    quicker = settings("http://host/v1", batch_size=9, max_concurrency=2, timeout=1, price_per_million=3)
    assert quicker.encoder_id() == settings("http://host/v1").encoder_id()


def test_long_texts_are_cut_to_the_estimate(server: FakeOpenAI) -> None:
    OpenAIEncoder(settings(server.url, max_input_tokens=20, document_prompt="passage: ")).encode_documents(
        ["word " * 100]
    )
    sent = server.embedded[0]
    assert sent.startswith("passage: word")
    assert estimate_tokens(sent) <= 20 < estimate_tokens(sent + "wor")


def test_a_cut_is_the_longest_beginning_that_fits() -> None:
    text = "naïve café 12345 東京タワー " * 20
    for limit in (3, 10, 57):
        short = truncate(text, limit)
        assert estimate_tokens(short) <= limit < estimate_tokens(text[: len(short) + 1])
    assert truncate(text, 1) == "n"


def test_a_text_over_the_batch_limit_goes_alone() -> None:
    batches = list(fill_batches(["a " * 300, "b", "c"], "", 1000, 10, 50))
    assert [batch.places.tolist() for batch in batches] == [[0], [1, 2]]
