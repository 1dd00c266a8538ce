"""An OpenAI-compatible chat server on loopback: labels from a hash of the pair, modes and faults on request.

`python tests/helpers/fake_chat.py --latency 0.05 --slots 256` serves in a process of its own and prints its base_url.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import math
import random
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

FAULTS = (
    "429",
    "429 retry-after",
    "500",
    "503",
    "hang",
    "dropped",
    "truncated body",
    "html",
    "empty object",
    "malformed",
    "wrong label",
)
PROSE = "I would say that it depends, see RFC 2119."


@dataclass(frozen=True)
class Request:
    """What a script may look at: the request's number, from 1, its pair, and how often that pair came, from 1."""

    number: int
    pair: str
    time: int
    body: dict[str, Any]


Script = Callable[[Request], str | None]
"""Names the fault that a request meets; None: it is served."""


def at_random(seed: int, share: float, most_wrong: int = 2) -> Script:
    """A share of the requests meets a random fault; a pair gets at most `most_wrong` wrong labels."""

    def pick(request: Request) -> str | None:
        dice = random.Random(f"{seed} {request.pair} {request.time}")
        if dice.random() >= share:
            return None
        fault = dice.choice(FAULTS)
        return "500" if fault == "wrong label" and request.time > most_wrong else fault

    return pick


def share_of(pair: str, *more: str) -> float:
    """A number from 0 to 1 that belongs to a pair."""
    digest = hashlib.blake2b("\n".join([pair, *more]).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") / 2**64


def probabilities(pair: str, labels: tuple[str, ...]) -> dict[str, float]:
    """What the server thinks of a pair: a probability for each label."""
    weights = {label: 0.01 + share_of(pair, label) ** 4 for label in labels}
    return {label: weight / sum(weights.values()) for label, weight in weights.items()}


def label_of(pair: str, labels: tuple[str, ...]) -> str:
    """The label that the server gives."""
    found = probabilities(pair, labels)
    return max(labels, key=found.__getitem__)


@dataclass
class FakeChat:
    """Serves /v1/chat/completions, /v1/models and /metrics while its context is open.

    Attributes:
        url: base_url for a client.
        knows: what it does with a request: `choice`, `json`, `logprobs`; what it does not know it ignores, and what
            it `refuses` it answers with `refusal_status`. Without either it answers a judge's prompt with the label.
        card: more of what /v1/models says of the model, which it answers with `models_status`.
        answers_as: the model in whose name replies are; empty: the one that was asked.
        decides: the label of a pair whose whole request is given; None, or a label that was not asked for: by a hash.
        says: makes the reply's text from the label, for models that say more than they are asked.
        alters: makes what is sent of a pair's completion, as an object or as text.
        unique_ids: whether each completion has an id of its own, as those of real servers.
        twice_after: seconds after which the fault "sent twice" repeats an answer.
        latency: seconds of each answer; `slots` requests are worked on at once, the others wait.
        bodies: of all requests, while `remember` is set; `headers` likewise.
        served: how often each pair was answered whole and well.
        most_at_once: requests under way at once, at most.
    """

    labels: tuple[str, ...] = ("yes", "no")
    knows: frozenset[str] = frozenset({"choice", "json", "logprobs"})
    refuses: frozenset[str] = frozenset()
    refusal_status: int = 400
    model: str = "fake"
    card: dict[str, Any] = field(default_factory=dict)
    models_status: int = 200
    answers_as: str = ""
    script: Script | None = None
    decides: Callable[[dict[str, Any]], str | None] | None = None
    says: Callable[[str], str] | None = None
    alters: Callable[[str, dict[str, Any]], dict[str, Any] | str] | None = None
    latency: float = 0.0
    slots: int = 1 << 30
    hang_seconds: float = 30.0
    retry_after: str = "0.05"
    longest: int = 1 << 30
    key: str = ""
    finish_reason: str = "stop"
    unique_ids: bool = True
    twice_after: float = 0.0
    remember: bool = True
    port: int = 0
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    served: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    working: int = 0
    most_at_once: int = 0
    cache_queries: int = 0
    cache_hits: int = 0

    def __enter__(self) -> Self:
        self._waiting: deque[Callable[[], None]] = deque()
        self._systems: set[int] = set()
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self.serve(started.set)), daemon=True)
        self._thread.start()
        started.wait()
        return self

    def __exit__(self, *_error: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def serve(self, started: Callable[[], None]) -> None:
        """Serve until stopped."""
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._open: set[_Connection] = set()
        server = await self._loop.create_server(lambda: _Connection(self), "127.0.0.1", self.port, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        started()
        await self._stop.wait()
        server.close()
        for connection in list(self._open):
            connection.drop()

    def handle(self, connection: _Connection, method: str, path: str, headers: dict[str, str], content: bytes) -> None:
        """Answer one request."""
        if self.key and headers.get("authorization") != f"Bearer {self.key}":
            connection.answer(401, {"error": {"message": f"wrong key {headers.get('authorization')}"}})
        elif path == "/v1/models":
            card = {"id": self.model, "object": "model", "max_model_len": self.longest} | self.card
            connection.answer(self.models_status, {"data": [card]} if self.models_status == 200 else {})
        elif path == "/metrics":
            lines = [("queries", self.cache_queries), ("hits", self.cache_hits)]
            connection.answer(200, "".join(f'vllm:prefix_cache_{n}_total{{engine="0"}} {v}\n' for n, v in lines))
        elif path == "/seen":  # for those who watch it from another process
            connection.answer(200, self.seen())
        elif path == "/v1/chat/completions" and method == "POST":
            self._chat(connection, headers, json.loads(content))
        else:
            connection.answer(404, {"detail": "Not Found"})

    def seen(self) -> dict[str, Any]:
        """What came since the last look: requests, pairs answered, pairs answered more than once, and faults."""
        twice = sum(times > 1 for times in self.served.values())
        found = {"requests": self.requests, "pairs": len(self.served), "twice": twice, "faults": dict(self.faults)}
        self.requests = 0
        self.served.clear()
        self.faults.clear()
        return found

    def _chat(self, connection: _Connection, headers: dict[str, str], body: dict[str, Any]) -> None:
        self.requests += 1
        pair = next(message["content"] for message in body["messages"] if message["role"] == "user")
        if self.remember:
            self.bodies.append(body)
            self.headers.append(headers)
            self.asked[pair] += 1
        request = Request(self.requests, pair, self.asked[pair], body)
        fault = self.script(request) if self.script else None
        if fault:
            self.faults[fault] += 1

        def work() -> None:
            self.working += 1
            self.most_at_once = max(self.most_at_once, self.working)
            if self.latency:
                self._loop.call_later(self.latency, done)
            else:
                done()

        def done() -> None:
            self.working -= 1
            if self._waiting:
                self._waiting.popleft()()
            self._reply(connection, body, pair, fault)

        if self.working < self.slots:
            work()
        else:
            self._waiting.append(work)

    def _reply(self, connection: _Connection, body: dict[str, Any], pair: str, fault: str | None) -> None:
        if fault == "hang":
            self._loop.call_later(self.hang_seconds, connection.drop)
        elif fault == "dropped":
            connection.drop()
        elif fault in {"429", "429 retry-after", "500", "503"}:
            more = {"retry-after": self.retry_after} if "retry" in fault else {}
            connection.answer(int(fault[:3]), {"error": {"message": "not now"}}, more)
        elif fault in {"html", "empty object"}:
            connection.answer(200, "<html><body>Sign in</body></html>" if fault == "html" else {})
        elif status := self._refusal(body):
            connection.answer(*status)
        else:
            self._answer(connection, body, pair, fault)

    def _answer(self, connection: _Connection, body: dict[str, Any], pair: str, fault: str | None) -> None:
        said: dict[str, Any] | str = self.completion(body, pair, wrong=fault == "wrong label")
        if self.alters and isinstance(said, dict):
            said = self.alters(pair, said)
        content = (said if isinstance(said, str) else json.dumps(said)).encode()
        if fault == "truncated body":
            connection.cut(content)
        elif fault == "malformed":
            connection.answer(200, content[:-1].decode())
        else:
            if fault in {None, "sent twice"} and self.remember:
                self.served[pair] += 1
            connection.answer(200, content.decode())
            if fault == "sent twice":
                self._loop.call_later(self.twice_after, connection.answer, 200, content.decode())

    def _refusal(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        asked = {"choice": "structured_outputs", "json": "response_format", "logprobs": "logprobs"}
        if body["model"] != self.model:
            return 404, {"error": {"message": f"The model {body['model']} does not exist.", "type": "NotFoundError"}}
        if any(asked[name] in body for name in self.refuses):
            return self.refusal_status, {"error": {"message": "unknown parameter", "code": "unknown_parameter"}}
        tokens = self._tokens(body)
        if tokens > self.longest:
            said = f"This model's maximum context length is {self.longest} tokens. However, you requested {tokens}"
            return 400, {"error": {"message": said, "type": "BadRequestError"}}
        return None

    def _tokens(self, body: dict[str, Any]) -> int:
        return sum(len(message["content"]) // 4 + 4 for message in body["messages"])

    def completion(self, body: dict[str, Any], pair: str, *, wrong: bool = False) -> dict[str, Any]:
        """The reply that a server without faults gives."""
        text, tokens = self._said(body, pair, wrong=wrong)
        choice: dict[str, Any] = {"index": 0, "finish_reason": self.finish_reason}
        choice["message"] = {"role": "assistant", "content": text}
        if body.get("logprobs") and "logprobs" in self.knows:
            choice["logprobs"] = {"content": tokens}
        prompt = self._tokens(body)
        known = hash(body["messages"][0]["content"])
        cached = len(body["messages"][0]["content"]) // 4 if known in self._systems else 0
        self._systems.add(known)
        self.cache_queries += prompt
        self.cache_hits += cached
        usage = {"prompt_tokens": prompt, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": cached}}
        return {
            "id": f"chatcmpl-{self.requests}" if self.unique_ids else "chatcmpl-fake",
            "object": "chat.completion",
            "model": self.answers_as or self.model,
            "choices": [choice],
            "usage": usage,
        }

    def _said(self, body: dict[str, Any], pair: str, *, wrong: bool) -> tuple[str, list[dict[str, Any]]]:
        judging = body["messages"][0]["role"] == "system"
        choice = body.get("structured_outputs", {}).get("choice") if "choice" in self.knows else None
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema") if "json" in self.knows else None
        labels = tuple(choice or (schema and schema["properties"]["label"]["enum"]) or self.labels)
        if wrong or not (choice or schema or judging):
            return PROSE, [_token(word, {word: 1.0}) for word in PROSE.split(" ")]
        label, shares = label_of(pair, labels), probabilities(pair, labels)
        decided = self.decides(body) if self.decides else None
        if decided in labels:
            label = decided
            shares = {other: 0.95 if other == decided else 0.05 / (len(labels) - 1) for other in labels}
        chosen = _token(label, shares)
        if self.says and not choice:
            return self.says(label), [chosen]
        if not schema:
            return label, [chosen]
        said = {"rationale": "Because."} if "rationale" in schema["properties"] else {}
        before, after = (json.dumps(said | {"label": "|"})).split("|")
        around = [_token(part, {part: 1.0}) for part in (before, after)]
        return before + label + after, [around[0], chosen, around[1]]


def _token(text: str, shares: dict[str, float]) -> dict[str, Any]:
    top = [{"token": token, "logprob": math.log(share)} for token, share in shares.items()]
    return {"token": text, "logprob": math.log(shares[text]), "top_logprobs": top}


class _Connection(asyncio.Protocol):
    """One client's connection: requests in, replies out, one after another."""

    transport: asyncio.Transport

    def __init__(self, fake: FakeChat) -> None:
        self._fake = fake
        self._buffer = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._fake._open.add(self)

    def connection_lost(self, _error: Exception | None) -> None:
        self._fake._open.discard(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        if len(rest) >= length:
            self._buffer = rest[length:]
            method, path, _ = first.split(" ")
            self._fake.handle(self, method, path, headers, rest[:length])

    def answer(self, status: int, content: dict[str, Any] | str, headers: dict[str, str] | None = None) -> None:
        body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{more}\r\n"
        self.transport.write(head.encode() + body)

    def cut(self, body: bytes) -> None:
        head = f"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body[: len(body) // 2])
        self.transport.close()

    def drop(self) -> None:
        self.transport.abort()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--slots", type=int, default=1 << 30)
    parser.add_argument("--faults", type=float, default=0.0)
    parser.add_argument("--hang", type=float, default=30.0)
    given = parser.parse_args()
    fake = FakeChat(latency=given.latency, slots=given.slots, hang_seconds=given.hang, remember=given.faults > 0)
    fake.script = at_random(7, given.faults) if given.faults else None
    with fake:
        print(fake.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
