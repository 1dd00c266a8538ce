"""From a pair to the body of a call, in the form that the server obeys; shared by live calls and batch files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pipeline.encoders.batching import ESTIMATE, cut, estimate_tokens
from pipeline.judges import quoting
from pipeline.judges.forms import Form
from pipeline.judges.prompt import Asked, Message, Prompt
from schemas.settings import MemberSettings

VERSION = 1
"""Of everything here that decides what a model reads, and of how its reply is read."""

_LONGEST_ECHO = 500
_MOST_TOKENS_PER_CHARACTER = 4
"""By the estimate that cuts; so a short chunk needs none."""


@dataclass(frozen=True)
class Asking:
    """A model, a prompt and a form: together they are the judge, wherever it is asked.

    Attributes:
        settings: of the judge; the server's address and the key play no part.
        prompt: see `load_prompt`.
        form: what the server obeys.
    """

    settings: MemberSettings
    prompt: Prompt
    form: Form

    @cached_property
    def judge_id(self) -> str:
        """`llm-1:`, model, prompt, form, and a hash of all that can change a verdict; threshold and address cannot."""
        given = self.settings
        basis = [
            *(VERSION, quoting.REVISION, given.model, given.revision, self.prompt.digest, str(self.form)),
            *(given.parameters, given.max_chunk_tokens, ESTIMATE),
        ]
        digest = hashlib.sha256(json.dumps(basis, sort_keys=True).encode()).hexdigest()[:16]
        model = f"{given.model}@{given.revision}" if given.revision else given.model
        return f"llm-{VERSION}:{model}:{self.prompt.name}-{self.prompt.head.version}:{self.form}:{digest}"

    def shown(self, pair: Asked, max_tokens: int) -> tuple[str, bool]:
        """The pair's user text, its chunk cut to an estimate of tokens, and whether it was cut."""
        if len(pair.chunk) * _MOST_TOKENS_PER_CHARACTER < max_tokens:
            return self.prompt.user_text(pair), False
        chunk = cut(pair.chunk, max_tokens)
        return self.prompt.user_text(replace(pair, chunk=chunk)), len(chunk) < len(pair.chunk)

    def body(self, user: str) -> bytes:
        """A call's body for a pair's user text."""
        before, after = self._around
        return before + json.dumps(user).encode() + after

    def body_again(self, user: str, raw_reply: str | None) -> bytes:
        """The same after a reply that could not be read: a model that is asked alike answers alike."""
        echo = quoting.quoted(raw_reply or "")[:_LONGEST_ECHO] or "(nothing)"
        turns = [("user", user), ("assistant", echo), ("user", self.prompt.head.again)]
        messages = [self._system, *({"role": role, "content": content} for role, content in turns)]
        return json.dumps(self._request | {"messages": messages}).encode()

    def estimate(self, user: str) -> tuple[int, int]:
        """Tokens of prompt and completion that a call may take at most, guessed high."""
        most = self._request.get("max_tokens") or self._request.get("max_completion_tokens") or 0
        return self._system_tokens + estimate_tokens(user), int(most)

    @cached_property
    def _system(self) -> Message:
        return {"role": "system", "content": self.prompt.system_text(self.form.answer(self.prompt))}

    @cached_property
    def _system_tokens(self) -> int:
        return estimate_tokens(self._system["content"])

    @cached_property
    def _request(self) -> dict[str, Any]:
        asked = {"model": self.settings.model} | self.form.parameters(self.prompt.labels) | self.settings.parameters
        return {name: value for name, value in asked.items() if value is not None}

    @cached_property
    def _around(self) -> tuple[bytes, bytes]:
        """A body with its only changing part taken out: made once, not with every call."""
        mark = "\x00"
        request = {"messages": [self._system, {"role": "user", "content": mark}]} | self._request
        before, after = json.dumps(request).split(json.dumps(mark))
        return before.encode(), after.encode()
