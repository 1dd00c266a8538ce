"""People's decisions about days of the log: a journal in which the last decision about a day counts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from typing import Literal

from darklode.pipeline.base.artifacts import Json, Store
from darklode.pipeline.base.artifacts.checksummed_json import dump_checksummed, load_checksummed
from darklode.pipeline.base.errors import ArtifactError, SettingsError

JOURNAL_FILE = "days.json"

Verdict = Literal["accepted", "discarded"]


@dataclass(frozen=True)
class Decision:
    """A decision about a day.

    Attributes:
        day: ISO date.
        tenant: the tenant that the decision is about; None: all tenants.
        verdict: accepted or discarded.
        note: the reason that the person gave, if any.
        at: time of the decision, ISO format, UTC.
        file_fingerprint: fingerprint of the day's files; if other files replace them, the decision no longer applies.
    """

    day: str
    tenant: str | None
    verdict: Verdict
    note: str | None
    at: str
    file_fingerprint: str

    def is_same(self, other: "Decision") -> bool:
        """Whether two decisions are equal except for their time."""
        return asdict(self) | {"at": ""} == asdict(other) | {"at": ""}


@dataclass(frozen=True)
class DecisionRequest:
    """Requested decisions: days as `2026-03-11`, or `TENANT:2026-03-11` for one tenant."""

    accept: Sequence[str] = ()
    discard: Sequence[str] = ()
    note: str | None = None

    def decisions(self, marks: Mapping[str, str]) -> Iterator[Decision]:
        """Turn the request into decisions about the present files.

        Args:
            marks: fingerprint of each day's files, for all days of the log.

        Raises:
            SettingsError: an invalid date, a day that is not in the log, or one that is both accepted and discarded.
        """
        if both := sorted(set(self.accept) & set(self.discard)):
            raise SettingsError(f"{both[0]} is both accepted and discarded; decide for one")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        requests: list[tuple[Verdict, str]] = [("accepted", tenant_day) for tenant_day in self.accept]
        requests += [("discarded", tenant_day) for tenant_day in self.discard]
        for verdict, tenant_day in requests:
            tenant, _, day = tenant_day.rpartition(":")
            iso_date = _normalize_date(day)
            if iso_date not in marks:
                raise SettingsError(f"the log has no day {iso_date}; `darklode status RUN` lists the days held back")
            yield Decision(iso_date, tenant or None, verdict, self.note, now, marks[iso_date])


def _normalize_date(day: str) -> str:
    """A date as YYYY-MM-DD; raises SettingsError if it is invalid."""
    try:
        return date.fromisoformat(day).isoformat()
    except ValueError as error:
        raise SettingsError(f"{day!r} is not a date; write 2026-03-11, or TENANT:2026-03-11") from error


class Decisions:
    """The journal of a run's decisions, in the file `JOURNAL_FILE` of its store; decisions are only ever appended."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self) -> list[Decision]:
        """All decisions, oldest first.

        Raises:
            ArtifactError: the file is damaged.
        """
        try:
            rows = load_checksummed(self._store.read(JOURNAL_FILE) or b"{}").get("decisions", [])
            return [Decision(**row) for row in rows]
        except (ValueError, TypeError) as error:
            message = f"{self._store.path(JOURNAL_FILE)} is damaged ({error})"
            raise ArtifactError(f"{message}; repair or delete it, and decide again about held days") from error

    def add(self, made: Iterable[Decision]) -> None:
        """Append decisions, except those that equal the last decision about the same day and tenant."""
        existing = self.all()
        last_decisions = {(decision.day, decision.tenant): decision for decision in existing}
        new = []
        for decision in made:
            last_decision = last_decisions.get((decision.day, decision.tenant))
            if last_decision is None or not decision.is_same(last_decision):
                new.append(decision)
        if new:
            rows = [asdict(decision) for decision in (*existing, *new)]
            self._store.write(JOURNAL_FILE, dump_checksummed({"decisions": rows}))

    def current(self, marks: Mapping[str, str]) -> dict[str, list[Decision]]:
        """Decisions about the present files by day, oldest first: the last one counts."""
        by_day: dict[str, list[Decision]] = {}
        for decision in self.all():
            if marks.get(decision.day) == decision.file_fingerprint:
                by_day.setdefault(decision.day, []).append(decision)
        return by_day


def identity(decisions: Mapping[str, Sequence[Decision]]) -> list[Json]:
    """Everything that decisions can change, as plain values."""
    return [[asdict(decision) for decision in made] for _, made in sorted(decisions.items())]
