"""An OpenAI-compatible embeddings server on loopback, with faults on request."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers.loopback_server import JsonHandler, LoopbackServer

FAULTS = (
    "429",
    "429 retry-after",
    "500",
    "503",
    "dropped",
    "truncated",
    "hang",
    "html",
    "empty object",
    "malformed",
    "too few",
    "dimension",
    "nan",
    "zero",
)
Script = Callable[[int], str | None]
"""From a request's number, from 1, to the fault it meets; None: it is served."""


def vector(text: str, dimensions: int) -> NDArray[np.float32]:
    """The vector of a text: random numbers seeded by its hash, not scaled."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    row: NDArray[np.float32] = np.random.default_rng(seed).standard_normal(dimensions, np.float32)
    return row


def unit_vectors(texts: list[str], dimensions: int) -> NDArray[np.float32]:
    """What an encoder should make of the texts, shape (len(texts), dimensions)."""
    rows = np.array([vector(text, dimensions) for text in texts], np.float64)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def scripted(**faults: str) -> Script:
    """Faults by request number: `scripted(n1="500", n3="dropped")`."""
    return lambda number: faults.get(f"n{number}")


def at_random(seed: int, share: float, faults: tuple[str, ...] = FAULTS) -> Script:
    """A share of the requests meets a random fault, the same for each request number."""

    def pick(number: int) -> str | None:
        dice = random.Random(seed * 100_003 + number)
        return dice.choice(faults) if dice.random() < share else None

    return pick


class FakeOpenAI(LoopbackServer):
    """Serves POST /v1/embeddings while its context is open.

    Attributes:
        url: base_url for a client.
        embedded: every text of a reply that was served whole and right, in the order of the replies.
        requests: bodies received, faulty ones too.
        headers: headers of each.
        times: when each arrived, seconds of a monotonic clock.
        most_at_once: requests under way at once, at most.
    """

    def __init__(self, dimensions: int = 8, script: Script | None = None, hang_seconds: float = 5) -> None:
        self.dimensions = dimensions
        self.script = script or (lambda _number: None)
        self.hang_seconds = hang_seconds
        self.delay = 0.0
        self.retry_after = "0.05"
        self.status: int | None = None
        self.message = "told so"
        self.shuffled = False
        self.usage: Callable[[list[str]], int] | None = lambda texts: sum(len(text) // 4 + 1 for text in texts)
        self.embedded: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.most_at_once = 0
        self.under_way = 0
        self.lock = threading.Lock()
        super().__init__(type("Handler", (_Handler,), {"fake": self}))
        self.url = f"{self.address}/v1"

    def reply(self, body: dict[str, Any], fault: str | None) -> bytes:
        """The body of a reply with status 200, spoilt as the fault says."""
        rows = [vector(text, int(body.get("dimensions") or self.dimensions)) for text in body["input"]]
        spoil = {"dimension": lambda row: row[:-1], "nan": lambda row: row * np.nan, "zero": lambda row: row * 0}
        if fault in spoil:
            rows[-1] = spoil[fault](rows[-1])
        if fault == "too few":
            rows = rows[:-1]
        as_base64 = body.get("encoding_format") == "base64"
        data = [
            {"index": index, "embedding": base64.b64encode(row.tobytes()).decode() if as_base64 else row.tolist()}
            for index, row in enumerate(rows)
        ]
        tokens = {"usage": {"total_tokens": self.usage(body["input"])}} if self.usage else {}
        return json.dumps({"object": "list", "data": data[::-1] if self.shuffled else data} | tokens).encode()


class _Handler(JsonHandler):
    fake: FakeOpenAI

    def serve_post(self, body: dict[str, Any]) -> None:
        fake = self.fake
        with fake.lock:
            fake.requests.append(body)
            fake.headers.append(self.lower_headers())
            fake.times.append(time.monotonic())
            number = len(fake.requests)
            fake.under_way += 1
            fake.most_at_once = max(fake.most_at_once, fake.under_way)
        try:
            self._serve(fake, body, fake.script(number))
        finally:
            with fake.lock:
                fake.under_way -= 1

    def _serve(self, fake: FakeOpenAI, body: dict[str, Any], fault: str | None) -> None:
        fake.closing.wait(fake.hang_seconds if fault == "hang" else fake.delay)
        if fake.status:
            self.answer(fake.status, json.dumps({"error": {"message": fake.message}}).encode())
        elif fault in {"429", "429 retry-after", "500", "503"}:
            headers = {"retry-after": fake.retry_after} if "retry" in fault else {}
            self.answer(int(fault[:3]), b'{"error": {"message": "not now"}}', headers)
        elif fault in {"dropped", "hang"}:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif fault in {"html", "empty object"}:
            self.answer(200, b"<html><body>Sign in</body></html>" if fault == "html" else b"{}")
        else:
            self._vectors(fake, body, fault)

    def _vectors(self, fake: FakeOpenAI, body: dict[str, Any], fault: str | None) -> None:
        content = fake.reply(body, fault)
        if fault == "truncated":
            self.answer(200, content[: len(content) // 2], {"content-length": str(len(content))})
            self.close_connection = True
            return
        if fault == "malformed":
            content = content[:-1]
        elif fault is None:
            with fake.lock:
                fake.embedded += body["input"]
        self.answer(200, content)
