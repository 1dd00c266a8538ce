"""What is no query is named, and a row that asks something stays."""

import json

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.prepare.noise import NOISE_PATTERNS, drop_noise
from darklode.schemas.settings import CleanSettings
from helpers.cleaning import cleaned, reasons, texts_of
from helpers.runs import SHARED

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
    ("algo = ( PPOConfig() .rollouts(num_rollout_workers=1) .build() )", "code"),
    ("x = 1", "code"),
    ("const total = await count(orders);", "code"),
    ("ray.init(num_cpus=4)", "code"),
    ("tune.run(trainable, config={'lr': 0.1})", "code"),
    ('print("every order has been sent")', "code"),
    ("@ray.remote(num_gpus=1)", "code"),
    ("ray.get(f.remote())", "code"),
    ("if isinstance(value, str):", "code"),
    ('"number_of_shards": 3,', "code"),
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
    "x = 1 does not work",
    "how do I set x = 1",
    "what does x = 1 mean?",
    "max_depth=3 overfitting",
    "num_gpus=1",
    "log4j2.formatMsgNoLookups=true",
    "discovery.type=single-node error",
    "width = 36 in",
    "df.groupby()",
    "Array.prototype.map()",
    "model.fit(X, y)",
    "std::vector<int>",
    "Mustang (2015)",
    "iphone 12(64gb)",
    "O(n log n)",
    "ray.init(num_cpus=4) hangs on windows",
]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "reason"), NOISE)
def test_noise_is_named(run: Run, text: str, reason: str) -> None:
    cleaned(run, [text, "how do i rotate a signing secret"], noise=True)
    assert texts_of(run) == ["how do i rotate a signing secret"]
    assert list(reasons(run).values()) == [reason]


@pytest.mark.slow
@pytest.mark.parametrize("text", QUERIES)
def test_queries_are_not_noise(run: Run, text: str) -> None:
    cleaned(run, [text], noise=True)
    assert texts_of(run) == [text]


def test_every_pattern_has_a_case() -> None:
    assert set(NOISE_PATTERNS) == {reason for _, reason in NOISE}


COLLECTIONS = "cisi cranfield homedepot insuranceqa stackfaq trec-dl-2019 vaswani".split()


@pytest.mark.skipif(not (SHARED / "collections").is_dir(), reason="the collections are not here")
@pytest.mark.parametrize("name", COLLECTIONS)
def test_no_real_query_is_taken_for_code(name: str) -> None:
    with (SHARED / "collections" / name / "queries.jsonl").open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    ids = [str(number) for number in range(len(texts))]
    queries = pa.table({"tenant": ["default"] * len(texts), "query_id": ids, "text": texts})
    reasons = drop_noise(queries, CleanSettings()).reasons.to_pylist()
    assert [text for text, reason in zip(texts, reasons, strict=True) if reason == "code"] == []
