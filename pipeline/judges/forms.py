"""How a label can be asked for, from the strictest form to the loosest, and how it is read back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.judges.prompt import Prompt

TOP_LOGPROBS = 20
"""As many alternatives as OpenAI and vLLM give."""

LABEL_TOKENS, RATIONALE_TOKENS = 32, 512
"""Room for a reply: a label in JSON, a reason besides."""


class Unreadable(Exception):
    """A reply without exactly one label, and why."""


@dataclass(frozen=True)
class Form:
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
        asked: dict[str, Any] = {"temperature": 0}
        asked["max_tokens"] = RATIONALE_TOKENS if self.rationale else LABEL_TOKENS
        if self.logprobs:
            asked |= {"logprobs": True, "top_logprobs": TOP_LOGPROBS}
        if self.mode == "choice":
            asked["structured_outputs"] = {"choice": list(labels)}
        if self.mode == "json":
            schema = {"name": "verdict", "strict": True, "schema": self._schema(labels)}
            asked["response_format"] = {"type": "json_schema", "json_schema": schema}
        return asked

    def answer(self, prompt: Prompt) -> str:
        """What the prompt says of the reply's form."""
        forms = prompt.head.answer
        if self.rationale:
            return forms.rationale
        return forms.json_ if self.mode == "json" else forms.label

    def read(self, said: str, labels: Sequence[str]) -> tuple[str, str | None]:
        """Label and reason of a reply. Nothing but the form asked for counts: no label is looked for in prose.

        Raises:
            Unreadable: it has another form, names no label, or two.
        """
        if self.mode == "json" or self.rationale:
            return _read_object(said, labels, {"label", "rationale"} if self.rationale else {"label"})
        label = said.strip()
        if label not in labels:
            raise Unreadable("the reply is none of the labels")
        return label, None

    def _schema(self, labels: Sequence[str]) -> dict[str, Any]:
        label = {"type": "string", "enum": list(labels)}
        properties = {"rationale": {"type": "string"}, "label": label} if self.rationale else {"label": label}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }


def _read_object(said: str, labels: Sequence[str], keys: set[str]) -> tuple[str, str | None]:
    try:
        found = json.loads(said, object_pairs_hook=_unique)
    except ValueError:
        raise Unreadable("the reply is no JSON") from None
    if not isinstance(found, dict) or set(found) != keys:
        raise Unreadable(f"the reply is no JSON object with {' and '.join(sorted(keys))}")
    reason = found.get("rationale")
    if found["label"] not in labels or not isinstance(reason, str | None):
        raise Unreadable("the reply names none of the labels")
    return found["label"], reason


def _unique(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Unreadable("the reply is contradictory: it holds a key twice")
    return found
