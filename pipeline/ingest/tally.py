"""How many rows came in, and how many were turned away for which reason."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from pipeline.artifacts import FunnelStep
from pipeline.errors import InputError, TooManyRejects


@dataclass
class Tally:
    """Counts of some rows.

    Attributes:
        rows: all that came in.
        reasons: how many were turned away, by reason.
        examples: a place (file, or file:line) for each reason.
        aside: the reasons that tell of another kind of row, not of one that could not be read.
    """

    rows: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    aside: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "Tally":
        """A tally from the plain values that `facts` gave."""
        return cls(**facts | {"reasons": Counter(facts["reasons"])})

    def facts(self) -> dict[str, Any]:
        """The tally as plain values."""
        return asdict(self) | {"reasons": dict(sorted(self.reasons.items()))}

    def drop(self, reason: str, example: str, rows: int = 1, *, aside: bool = False) -> None:
        """Count rows that are turned away; `aside`: since they are of another kind."""
        self.reasons[reason] += rows
        self.examples.setdefault(reason, example)
        if aside and reason not in self.aside:
            self.aside.append(reason)

    def add(self, other: "Tally") -> None:
        """Count another's rows, too."""
        self.rows += other.rows
        self.reasons += other.reasons
        self.examples = other.examples | self.examples
        self.aside += [reason for reason in other.aside if reason not in self.aside]

    @property
    def kept(self) -> int:
        return self.rows - self.reasons.total()

    @property
    def own(self) -> int:
        """The rows that came in, without those of another kind."""
        return self.rows - sum(self.reasons[reason] for reason in self.aside)

    def step(self, kind: str) -> FunnelStep:
        """The funnel's step."""
        dropped = {reason: count for reason, count in sorted(self.reasons.items()) if count}
        return FunnelStep(f"ingest.{kind}", "rows", self.rows, "rows", self.kept, dropped)

    def check(self, path: str, kind: str, columns: str, share: float) -> None:
        """Check that enough of the rows could be read.

        Args:
            path: the source as the user named it.
            kind: what it holds, such as `documents`.
            columns: the setting that names its columns.
            share: the share of rows, from 0 to 1, that may be turned away.

        Raises:
            InputError: nothing was read.
            TooManyRejects: more than `share` of the rows could not be read, or none could.
        """
        if not self.own:
            raise InputError(f"{path} holds no {kind}: every file is empty; check the path")
        if self.own - self.kept > share * self.own or not self.kept:
            raise TooManyRejects(self._complaint(path, columns, share))

    def _complaint(self, path: str, columns: str, share: float) -> str:
        worst = [item for item in self.reasons.most_common() if item[0] not in self.aside][:3]
        reasons = "; ".join(f"{reason}: {count}, such as {self.examples[reason]}" for reason, count in worst)
        bound = f", more than {share:.0%}" if self.kept else ""
        return (
            f"{self.own - self.kept} of {self.own} rows of {path} could not be read{bound} ({reasons}); "
            f"check {columns} and the file, or raise ingest.max_reject_share"
        )
