"""How a label can be asked for, from the strictest form to the loosest, and how it is read back.

From a pair to the body of a call, in the form that the server obeys; shared by live calls and batch files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base import quoting
from darklode.pipeline.base.remote.budget import Usage
from darklode.pipeline.base.remote.call_errors import sanitize
from darklode.pipeline.base.remote.chat import max_tokens, merge_fields
from darklode.pipeline.base.remote.tokens import ESTIMATE, estimate_tokens, truncate
from darklode.pipeline.judge.kinds.llm import LlmSettings
from darklode.pipeline.judge.llm import lenient_parsing
from darklode.pipeline.judge.llm.prompt import JudgePrompt, Message, PairText
from darklode.pipeline.judge.port import Earlier

TOP_LOGPROBS = 20
"""As many alternatives as OpenAI and vLLM give."""

LABEL_TOKENS, RATIONALE_TOKENS = 32, 512
"""Room for a reply: a label in JSON, a reason besides."""


class NoLabelFound(Exception):
    """A reply without exactly one label, and why."""


@dataclass(frozen=True)
class OutputFormat:
    """What is asked of the server besides the messages.

    Attributes:
        mode: choice (`structured_outputs`, vLLM), json (`response_format`), or text, which the prompt alone shapes.
        logprobs: whether log-probabilities come with the reply.
        rationale: whether a reason is asked for before the label; not in the mode choice.
    """

    mode: str
    logprobs: bool
    rationale: bool = False

    def __str__(self) -> str:
        return "+".join([self.mode, *(name for name in ("logprobs", "rationale") if getattr(self, name))])

    def parameters(self, labels: Sequence[str]) -> dict[str, Any]:
        """Fields of the request's body."""
        request: dict[str, Any] = {"temperature": 0}
        request["max_tokens"] = RATIONALE_TOKENS if self.rationale else LABEL_TOKENS
        if self.logprobs:
            request |= {"logprobs": True, "top_logprobs": TOP_LOGPROBS}
        if self.mode == "choice":
            request["structured_outputs"] = {"choice": list(labels)}
        if self.mode == "json":
            schema = {"name": "verdict", "strict": True, "schema": self._schema(labels)}
            request["response_format"] = {"type": "json_schema", "json_schema": schema}
        return request

    def answer(self, prompt: JudgePrompt) -> str:
        """What the prompt says of the reply's form."""
        forms = prompt.head.answer
        if self.rationale:
            return forms.rationale
        return forms.json_ if self.mode == "json" else forms.label

    def read(self, reply: str, labels: Sequence[str]) -> tuple[str, str | None]:
        """Label and reason of a reply, by `nearly.answer`. Nothing but the form asked for counts.

        Raises:
            Unreadable: it has another form, names no label, or two.
        """
        label_found = lenient_parsing.find_answer(reply)
        if self.is_object:
            return _read_object(label_found, labels, {"label", "rationale"} if self.rationale else {"label"})
        label = lenient_parsing.find_label(label_found, labels)
        if label is None:
            raise NoLabelFound("the reply is none of the labels")
        return label, None

    @property
    def is_object(self) -> bool:
        """Whether the reply is a JSON object, not the bare label."""
        return self.mode == "json" or self.rationale

    def _schema(self, labels: Sequence[str]) -> dict[str, Any]:
        label = {"type": "string", "enum": list(labels)}
        properties = {"rationale": {"type": "string"}, "label": label} if self.rationale else {"label": label}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }


def _read_object(reply: str, labels: Sequence[str], keys: set[str]) -> tuple[str, str | None]:
    try:
        value = json.loads(reply, object_pairs_hook=_unique)
    except ValueError:
        raise NoLabelFound("the reply is no JSON") from None
    except RecursionError:
        raise NoLabelFound("the reply is nested too deep (RecursionError)") from None
    if not isinstance(value, dict) or not keys <= value.keys():
        raise NoLabelFound(f"the reply is no JSON object with {' and '.join(sorted(keys))}")
    label, reason = (
        lenient_parsing.find_label(value["label"], labels),
        value["rationale"] if "rationale" in keys else None,
    )
    if label is None or not isinstance(reason, str | None):
        raise NoLabelFound("the reply names none of the labels")
    return label, reason and sanitize(reason)


def _unique(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise NoLabelFound("the reply is contradictory: it holds a key twice")
    return values


VERSION = 1
"""Of everything here that decides what a model reads, and of how its reply is read."""

_LONGEST_ECHO = 500
_MOST_TOKENS_PER_CHARACTER = 4
"""By the estimate that cuts; so a short chunk needs none."""


@dataclass(frozen=True)
class RequestTemplate:
    """A model, a prompt and a form: together they are the judge, wherever it is asked.

    Attributes:
        settings: of the judge; the server's address and the key play no part.
        prompt: see `load_prompt`.
        form: what the server obeys.
        served: see `served.served`.
    """

    settings: LlmSettings
    prompt: JudgePrompt
    form: OutputFormat
    served: str = ""

    @cached_property
    def judge_id(self) -> str:
        """`llm-1:`, model, prompt, form, and a hash of all that can change a verdict; threshold and address cannot."""
        return self._id(quoting.REVISION)

    def template_for(self, judge_id: str) -> RequestTemplate | None:
        """The judge that an id is today's or the earlier one of, if it is this one but for what is served."""
        before, after = map(re.escape, self._title("\x00").split("=\x00"))
        match = re.fullmatch(f"{before}(?:=(.+))?{after}[0-9a-f]+", judge_id)
        same = replace(self, served=match[1] or "") if match else None
        return same if same and judge_id in same.ids else None

    @property
    def ids(self) -> list[str]:
        """The judge's id, and the earlier one where there is one."""
        return [self.judge_id, *([self.previous_version.judge_id] if self.previous_version else [])]

    @property
    def previous_version(self) -> Earlier | None:
        """The judge before the quoting of today, which knew a model by its name alone.

        None where that quoted the prompt's own examples otherwise, or where another model is served under the name.
        """
        if self.served:
            return None
        shown = [text for example in self.prompt.examples for text in astuple(example.pair)]
        if not self.prompt.quoting.as_before(pa.chunked_array([shown], pa.string())).all():
            return None
        return Earlier(self._id(1), self._shown_as_before)

    def _shown_as_before(self, pairs: pa.Table) -> NDArray[np.bool_]:
        texts = ("query", "title", "heading", "text")
        same: NDArray[np.bool_] = np.all([self.prompt.quoting.as_before(pairs[name]) for name in texts], axis=0)
        return same

    def _id(self, revision: int) -> str:
        settings = self.settings
        basis = [
            *(VERSION, revision, settings.model, settings.revision, self.prompt.digest, str(self.form)),
            *(settings.parameters, settings.max_chunk_tokens, ESTIMATE),
            *filter(None, [self.served]),
        ]
        digest = hashlib.sha256(json.dumps(basis, sort_keys=True).encode()).hexdigest()[:16]
        return f"{self._title(self.served)}{digest}"

    def _title(self, served: str) -> str:
        """What an id says in words."""
        settings = self.settings
        model = f"{settings.model}@{settings.revision}" if settings.revision else settings.model
        serving = f"={served}" if served else ""
        return f"llm-{VERSION}:{model}{serving}:{self.prompt.name}-{self.prompt.head.version}:{self.form}:"

    def fit_pair(self, pair: PairText, max_tokens: int) -> tuple[str, bool]:
        """The pair's user text, its chunk truncate to an estimate of tokens, and whether it was truncate."""
        if len(pair.chunk) * _MOST_TOKENS_PER_CHARACTER < max_tokens:
            return self.prompt.user_text(pair), False
        chunk = truncate(pair.chunk, max_tokens)
        is_complete = len(chunk) == len(pair.chunk)
        return self.prompt.user_text(pair if is_complete else replace(pair, chunk=chunk)), not is_complete

    def body(self, user: str) -> bytes:
        """A call's body for a pair's user text."""
        before, after = self._split_body
        return before + json.dumps(user).encode() + after

    def plain_body(self, user: str) -> bytes:
        """A call's body for a text alone, with nothing of the form but room for a label."""
        body = merge_fields({"model": self.settings.model, "max_tokens": LABEL_TOKENS}, self.settings.parameters)
        return json.dumps({"messages": [{"role": "user", "content": user}]} | body).encode()

    def body_again(self, user: str, raw_reply: str | None) -> bytes:
        """The same after a reply that could not be read: a model that is asked alike answers alike."""
        turns = [("user", user), ("assistant", self._repeat_reply(raw_reply)), ("user", self.prompt.head.again)]
        messages = [self._system, *({"role": role, "content": content} for role, content in turns)]
        return json.dumps(self._request | {"messages": messages}).encode()

    def estimate(self, user: str) -> Usage:
        """Tokens of prompt and completion that a call may take at most, guessed high."""
        return Usage(self._system_tokens + estimate_tokens(user), max_tokens(self._request))

    def estimate_again(self, user: str, raw_reply: str | None) -> Usage:
        """The same of a call of `body_again`."""
        first = self.estimate(user)
        turns = estimate_tokens(self._repeat_reply(raw_reply)) + estimate_tokens(self.prompt.head.again)
        return Usage(first.prompt + turns, first.completion)

    def _repeat_reply(self, raw_reply: str | None) -> str:
        """A reply that could not be read, as the model is shown it."""
        return self.prompt.quoting.quote(raw_reply or "")[:_LONGEST_ECHO] or "(nothing)"

    @cached_property
    def _system(self) -> Message:
        return {"role": "system", "content": self.prompt.system_text(self.form.answer(self.prompt))}

    @cached_property
    def _system_tokens(self) -> int:
        return estimate_tokens(self._system["content"])

    @cached_property
    def _request(self) -> dict[str, Any]:
        default = {"model": self.settings.model} | self.form.parameters(self.prompt.labels)
        return merge_fields(default, self.settings.parameters)

    @cached_property
    def _split_body(self) -> tuple[bytes, bytes]:
        """A body with its only changing part taken out: made once, not with every call."""
        mark = "\x00"
        request = {"messages": [self._system, {"role": "user", "content": mark}]} | self._request
        before, after = json.dumps(request).split(json.dumps(mark))
        return before.encode(), after.encode()
