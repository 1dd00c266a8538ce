"""What a nightly run needs from earlier runs besides their tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from darklode.pipeline.base.artifacts import Run, Stage, Tables, key_of
from darklode.pipeline.ingest.logs import INGEST_LOGS
from darklode.pipeline.mine.admission.admitted_log import LEFT_OUT_FACT, AdmittedRows
from darklode.pipeline.mine.admission.decisions import Decisions
from darklode.pipeline.mine.admission.stage import ADMIT_DAYS
from darklode.pipeline.mine.admission.verdicts import TenantHistory
from darklode.pipeline.mine.association.stage import ASSOCIATE
from darklode.pipeline.mine.days import Days, days_until, digests, settled_through
from darklode.pipeline.mine.evidence import EVIDENCE
from darklode.pipeline.mine.relevance.stage import RELEVANCE
from darklode.pipeline.mine.term_weighting.port import WEIGHT_TERMS

SETTLED_DAYS_INPUT = "the settled days"
"""Name of the input of learning stages: the days that are old enough to receive no more late events."""
STAGES_BEFORE_PAIRS = (WEIGHT_TERMS, ASSOCIATE, RELEVANCE)
"""Stages whose settings all pairs depend on."""


@dataclass(frozen=True)
class EarlierRun:
    """What is known of the previous run, so that only changed pairs are made again.

    Attributes:
        contains: by day, fingerprints of earlier versions of its click evidence that the present one only adds to.
        made_with: settings of earlier stages; if one changed, rows may have disappeared.
    """

    contains: Mapping[str, Sequence[str]]
    made_with: Mapping[str, Mapping[str, Any]]

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything that all pairs depend on, for fingerprints; a day's evidence is a separate input."""
        return self.made_with


@dataclass(frozen=True)
class History:
    """Looks up the state of a run; a new run has no days, and nothing is settled.

    Attributes:
        run: the run.
        refresh_days: length of a learning period in days, see `settled_through`.
        late_days: number of days that events may arrive late, see `settled_through`.
        test_from: first day of the test period, from which nothing is learned.
        requested_date: returns the last day of the log when learning was requested.
    """

    run: Run
    refresh_days: int
    late_days: int
    test_from: date | None
    requested_date: Callable[[], date | None]

    def sources(self) -> Mapping[str, Any]:
        """Fingerprint of the files that were read of the log, by partition (an ISO date for a day)."""
        return dict(self._facts(INGEST_LOGS).get("sources", {}))

    def learned_through(self) -> date | None:
        """Last day from which term weights and click model are learned; never in the test period."""
        days = [date.fromisoformat(day) for day in self.admitted_days()]
        days = [day for day in days if self.test_from is None or day < self.test_from]
        if not days:
            return None
        return settled_through(
            days[0], days[-1], refresh_days=self.refresh_days, late_days=self.late_days, requested=self.requested_date()
        )

    def admitted_days(self) -> Mapping[str, str]:
        """Fingerprint of each admitted day; a decision about another day does not change it."""
        parts = self.run.parts()
        if "impressions" not in parts:
            return {}
        tables = self.run.tables(*({"impressions", "log_days"} & parts.keys()))
        left_out_by_day = self._facts(ADMIT_DAYS).get(LEFT_OUT_FACT)
        # The recorded fact saves reading the table `log_days`.
        admitted_rows = (
            AdmittedRows.from_tables(tables)
            if left_out_by_day is None
            else AdmittedRows.without_days(tables, left_out_by_day)
        )
        return admitted_rows.digests()

    def shown_until(self, through: date | None) -> Mapping[str, str]:
        """Fingerprint of the admitted days up to and including `through`, as an input of a stage."""
        return {SETTLED_DAYS_INPUT: key_of(days_until(self.admitted_days(), through))}

    def clicked_until(self, through: date | None) -> Mapping[str, str]:
        """Fingerprint of the click evidence up to and including `through`, as an input of a stage."""
        return {SETTLED_DAYS_INPUT: key_of(days_until(digests(self._days("click_evidence")), through))}

    def admission_state(self) -> TenantHistory:
        """Days whose files were read, and people's decisions that apply to the present files."""
        read_days = frozenset(name for name in self.sources() if _is_day(name))
        return TenantHistory(read_days, Decisions(self.run.store).current(self.marks()))

    def marks(self) -> Mapping[str, str]:
        """Fingerprint of each day's own files without late events; for a day without files, of its rows."""
        # A day's fingerprint is that of its own files, then, after "-", those of preceding days with late events.
        file_fingerprints = {
            name: fingerprint.partition("-")[0] for name, fingerprint in self.sources().items() if _is_day(name)
        }
        return digests(self._days("impressions", "timestamp")) | file_fingerprints

    def learned_tables(self, table: str) -> Tables:
        """A table learned from settled days; empty before the first learning."""
        return self.run.tables(table) if table in self.run.parts() else Tables.empty(table)

    def earlier_run(self) -> EarlierRun:
        """What the pairs of the previous run were made from."""
        manifests = {stage.name: self.run.manifest(stage) for stage in STAGES_BEFORE_PAIRS}
        made_with = {name: manifest.settings if manifest else {} for name, manifest in manifests.items()}
        return EarlierRun(self._facts(EVIDENCE).get("contains", {}), made_with)

    def _days(self, table: str, column: str = "date") -> Days:
        """A table's parts by day; none if the run does not have the table."""
        return self.run.tables(table).by_day(table, column) if table in self.run.parts() else {}

    def _facts(self, stage: Stage) -> Mapping[str, Any]:
        """The facts that a stage recorded; none if it has not run."""
        manifest = self.run.manifest(stage)
        return manifest.facts if manifest else {}


def _is_day(name: str) -> bool:
    """Whether the name of a partition is an ISO date."""
    try:
        return date.fromisoformat(name).isoformat() == name
    except ValueError:
        return False
