"""Output formats (choice, JSON schema, text), and request bodies in these formats; shared by live calls and batch
files.
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
from darklode.pipeline.base.remote.tokens import ESTIMATE_REVISION, estimate_tokens, truncate
from darklode.pipeline.judge.llm import lenient_parsing
from darklode.pipeline.judge.llm.prompt import JudgePrompt, Message, PairText
from darklode.pipeline.judge.llm.settings import LlmSettings
from darklode.pipeline.judge.port import Earlier

TOP_LOGPROBS = 20
"""Maximum number of alternatives that OpenAI and vLLM return."""

LABEL_TOKENS, RATIONALE_TOKENS = 32, 512
"""max_tokens of a reply with a label only (enough for one in JSON), and of one with a rationale."""


class NoLabelFound(Exception):
    """A reply does not contain exactly one label; the message says why."""


@dataclass(frozen=True)
class OutputFormat:
    """How the label is requested.

    Attributes:
        mode: choice (`structured_outputs`, vLLM), json (`response_format`), or text (prompt only).
        logprobs: request log-probabilities.
        rationale: request a reason before the label; not in the mode choice.
    """

    mode: str
    logprobs: bool
    rationale: bool = False

    def __str__(self) -> str:
        return "+".join([self.mode, *(name for name in ("logprobs", "rationale") if getattr(self, name))])

    def parameters(self, labels: Sequence[str]) -> dict[str, Any]:
        """Build the fields of the request body that ask for this format.

        Args:
            labels: labels of the prompt.
        """
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
        """The prompt's instruction for this format."""
        instructions = prompt.head.answer
        if self.rationale:
            return instructions.rationale
        return instructions.json_ if self.mode == "json" else instructions.label

    def read(self, reply: str, labels: Sequence[str]) -> tuple[str, str | None]:
        """Read the label, and the rationale if there is one, from a reply in exactly this format.

        Raises:
            NoLabelFound: another format, no label, or two labels.
        """
        answer = lenient_parsing.find_answer(reply)
        if self.is_object:
            return _read_object(answer, labels, {"label", "rationale"} if self.rationale else {"label"})
        label = lenient_parsing.find_label(answer, labels)
        if label is None:
            raise NoLabelFound("the reply is not a label")
        return label, None

    @property
    def is_object(self) -> bool:
        """Whether the reply is a JSON object instead of a bare label."""
        return self.mode == "json" or self.rationale

    def _schema(self, labels: Sequence[str]) -> dict[str, Any]:
        """Build the JSON schema of a reply; the rationale comes first, so that the model reasons before it decides."""
        label = {"type": "string", "enum": list(labels)}
        properties = {"rationale": {"type": "string"}, "label": label} if self.rationale else {"label": label}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }


def _read_object(reply: str, labels: Sequence[str], keys: set[str]) -> tuple[str, str | None]:
    """Read label and rationale from a JSON object that must have these keys."""
    try:
        value = json.loads(reply, object_pairs_hook=_reject_duplicate_keys)
    except ValueError:
        raise NoLabelFound("the reply is not JSON") from None
    except RecursionError:
        raise NoLabelFound("the reply is nested too deeply (RecursionError)") from None
    if not isinstance(value, dict) or not keys <= value.keys():
        raise NoLabelFound(f"the reply is not a JSON object with {' and '.join(sorted(keys))}")
    label = lenient_parsing.find_label(value["label"], labels)
    reason = value["rationale"] if "rationale" in keys else None
    if label is None or not isinstance(reason, str | None):
        raise NoLabelFound("the reply has no valid label")
    return label, reason and sanitize(reason)


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    """Build a JSON object; a key that occurs twice, e.g. with two labels, is an error."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise NoLabelFound("the reply is contradictory: duplicate key")
    return values


VERSION = 1
"""Version of everything here that changes what a model reads or how its reply is read. It is part of the judge's id:
raising it makes every pair be judged again."""

_MAX_ECHO_CHARACTERS = 500  # of an unreadable reply that is shown to the model again
_MAX_TOKENS_PER_CHARACTER = 4
"""Upper bound of the estimated tokens per character, so that short chunks need no estimate."""


@dataclass(frozen=True)
class RequestTemplate:
    """Model, prompt and output format: everything that identifies the judge, and builds its requests.

    Attributes:
        settings: settings of the judge; its URLs and key are no part of its identity.
        prompt: the validated prompt (see `load_prompt`).
        form: output format.
        served: the model behind the name, as servers report it (see `served_identity`); empty: not reported.
    """

    settings: LlmSettings
    prompt: JudgePrompt
    form: OutputFormat
    served: str = ""

    @cached_property
    def judge_id(self) -> str:
        """`llm-1:`, model, prompt, output format, and a hash of everything that can change a verdict."""
        return self._id(quoting.REVISION)

    def template_for(self, judge_id: str) -> RequestTemplate | None:
        """Return this template with the served model of an id; None if the id differs in anything else."""
        before, after = map(re.escape, self._title("\x00").split("=\x00"))
        match = re.fullmatch(f"{before}(?:=(.+))?{after}[0-9a-f]+", judge_id)
        candidate = replace(self, served=match[1] or "") if match else None
        return candidate if candidate and judge_id in candidate.ids else None

    @property
    def ids(self) -> list[str]:
        """The judge's id, and that of its earlier version if there is one."""
        return [self.judge_id, *([self.previous_version.judge_id] if self.previous_version else [])]

    @property
    def previous_version(self) -> Earlier | None:
        """The version before the current quoting, which identified a model by name only.

        None if it quoted the prompt's examples differently, or if another model is served under the name.
        """
        if self.served:
            return None
        example_texts = [text for example in self.prompt.examples for text in astuple(example.pair)]
        if not self.prompt.quoting.as_before(pa.chunked_array([example_texts], pa.string())).all():
            return None
        return Earlier(self._id(1), self._is_prompt_unchanged)

    def _is_prompt_unchanged(self, pairs: pa.Table) -> NDArray[np.bool_]:
        """Whether the version before quoted each pair's texts as this one does, shape (n_pairs,)."""
        columns = ("query", "title", "heading", "text")
        is_unchanged: NDArray[np.bool_] = np.all(
            [self.prompt.quoting.as_before(pairs[column]) for column in columns], axis=0
        )
        return is_unchanged

    def _id(self, revision: int) -> str:
        """Build the judge's id for a revision of the quoting; changing what is hashed makes every pair be judged
        again.
        """
        settings = self.settings
        hashed = [
            *(VERSION, revision, settings.model, settings.revision, self.prompt.digest, str(self.form)),
            *(settings.extra_body, settings.max_chunk_tokens, ESTIMATE_REVISION),
            *filter(None, [self.served]),
        ]
        digest = hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()[:16]
        return f"{self._title(self.served)}{digest}"

    def _title(self, served: str) -> str:
        """The readable part of an id."""
        settings = self.settings
        model = f"{settings.model}@{settings.revision}" if settings.revision else settings.model
        serving = f"={served}" if served else ""
        return f"llm-{VERSION}:{model}{serving}:{self.prompt.name}-{self.prompt.head.version}:{self.form}:"

    def fit_pair(self, pair: PairText, max_tokens: int) -> tuple[str, bool]:
        """Build the user message of a pair, with its chunk truncated to about `max_tokens`; also whether it was
        truncated.
        """
        if len(pair.chunk) * _MAX_TOKENS_PER_CHARACTER < max_tokens:
            return self.prompt.user_text(pair), False
        chunk = truncate(pair.chunk, max_tokens)
        is_complete = len(chunk) == len(pair.chunk)
        return self.prompt.user_text(pair if is_complete else replace(pair, chunk=chunk)), not is_complete

    def body(self, user: str) -> bytes:
        """Build the request body for a user message."""
        before, after = self._split_body
        return before + json.dumps(user).encode() + after

    def plain_body(self, user: str) -> bytes:
        """Build the request body for a text alone, without system prompt and output format."""
        body = merge_fields({"model": self.settings.model, "max_tokens": LABEL_TOKENS}, self.settings.extra_body)
        return json.dumps({"messages": [{"role": "user", "content": user}]} | body).encode()

    def body_again(self, user: str, raw_reply: str | None) -> bytes:
        """Build the request body after an unreadable reply; it shows the reply, since an identical request would likely
        get the same one.
        """
        dialogue = [("user", user), ("assistant", self._repeat_reply(raw_reply)), ("user", self.prompt.head.again)]
        messages = [self._system, *({"role": role, "content": content} for role, content in dialogue)]
        return json.dumps(self._request | {"messages": messages}).encode()

    def estimate(self, user: str) -> Usage:
        """Compute an upper estimate of a call's prompt and completion tokens."""
        return Usage(self._system_tokens + estimate_tokens(user), max_tokens(self._request))

    def estimate_again(self, user: str, raw_reply: str | None) -> Usage:
        """Compute an upper estimate of the tokens of a call with `body_again`."""
        first = self.estimate(user)
        added = estimate_tokens(self._repeat_reply(raw_reply)) + estimate_tokens(self.prompt.head.again)
        return Usage(first.prompt + added, first.completion)

    def _repeat_reply(self, raw_reply: str | None) -> str:
        """Quote an unreadable reply for the model, cut after `_MAX_ECHO_CHARACTERS`."""
        return self.prompt.quoting.quote(raw_reply or "")[:_MAX_ECHO_CHARACTERS] or "(nothing)"

    @cached_property
    def _system(self) -> Message:
        return {"role": "system", "content": self.prompt.system_text(self.form.answer(self.prompt))}

    @cached_property
    def _system_tokens(self) -> int:
        return estimate_tokens(self._system["content"])

    @cached_property
    def _request(self) -> dict[str, Any]:
        default = {"model": self.settings.model} | self.form.parameters(self.prompt.labels)
        return merge_fields(default, self.settings.extra_body)

    @cached_property
    def _split_body(self) -> tuple[bytes, bytes]:
        """The body before and after the user message, serialized once instead of per call."""
        placeholder = "\x00"
        request = {"messages": [self._system, {"role": "user", "content": placeholder}]} | self._request
        before, after = json.dumps(request).split(json.dumps(placeholder))
        return before.encode(), after.encode()
