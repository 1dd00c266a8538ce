"""Kinds of probes: which pairs they are drawn from, and which replies are wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

POSITIVE, NEGATIVE, BOTH = "positives", "negatives", "positives and negatives"
RANDOM_CHUNK, OTHER_TENANT = "random chunks", "chunks of another tenant"

FALSE_POSITIVE_RATE, FLIP_RATE = "false positive rate", "flip rate"

AS_EXPECTED, WRONG, NOT_READ, EXCLUDED = "as expected", "wrong", "unreadable", "excluded"


@dataclass(frozen=True)
class ProbeKind:
    """A kind of probe.

    Attributes:
        drawn_from: pairs of the run that are altered.
        measure: `FALSE_POSITIVE_RATE`: the altered pair is never relevant; `FLIP_RATE`: its label must not change.
        needs_negative: only pairs whose unchanged texts the judge calls not relevant can show a false positive.
    """

    drawn_from: str
    measure: str
    needs_negative: bool = False

    def outcome(self, unchanged: bool | None, altered: bool | None) -> str:
        """Classify the labels of an unchanged and an altered pair; None: unreadable."""
        if altered is None:
            return NOT_READ
        if self.measure == FALSE_POSITIVE_RATE and not self.needs_negative:
            return WRONG if altered else AS_EXPECTED
        if unchanged is None:
            return NOT_READ
        if self.needs_negative and unchanged:
            return EXCLUDED
        return WRONG if altered != unchanged else AS_EXPECTED


REPEATED, ORDER_OF_EXAMPLES, OTHER_TENANT_CHUNK = "repeated", "order of examples", "other tenant"

PROBE_KINDS: Mapping[str, ProbeKind] = MappingProxyType(
    {
        REPEATED: ProbeKind(BOTH, FLIP_RATE),
        "reworded query": ProbeKind(BOTH, FLIP_RATE),
        ORDER_OF_EXAMPLES: ProbeKind(BOTH, FLIP_RATE),
        "stuffed query": ProbeKind(RANDOM_CHUNK, FALSE_POSITIVE_RATE, needs_negative=True),
        "planted instruction": ProbeKind(NEGATIVE, FALSE_POSITIVE_RATE, needs_negative=True),
        "truncated chunk": ProbeKind(POSITIVE, FALSE_POSITIVE_RATE),
        "empty chunk": ProbeKind(POSITIVE, FALSE_POSITIVE_RATE),
        "other language": ProbeKind(POSITIVE, FALSE_POSITIVE_RATE),
        OTHER_TENANT_CHUNK: ProbeKind(OTHER_TENANT, FALSE_POSITIVE_RATE),
    }
)
"""The three flip rates use the same pairs. "repeated" is the noise floor: the judge's own second reply."""
