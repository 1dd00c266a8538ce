"""What the complete stages of a run tell those of the next night besides their tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from darklode.pipeline.base.artifacts import Run, Stage, Tables, key_of
from darklode.pipeline.ingest.logs import INGEST_LOGS
from darklode.pipeline.mine.association.stage import ASSOCIATE
from darklode.pipeline.mine.days import Days, digests, settled, until
from darklode.pipeline.mine.evidence import EVIDENCE
from darklode.pipeline.mine.planners.port import PLAN_QUERIES
from darklode.pipeline.mine.relevance.stage import RELEVANCE

BEFORE_PAIRS = (PLAN_QUERIES, ASSOCIATE, RELEVANCE)


@dataclass(frozen=True)
class Past:
    """What a night needs to know of earlier ones to make only the pairs that changed.

    Attributes:
        contains: by day, the digests of earlier versions of its click evidence that the present one only adds to.
        made_with: the settings of the stages before, by stage: where one changes, rows may have gone.
    """

    contains: Mapping[str, Sequence[str]]
    made_with: Mapping[str, Mapping[str, Any]]

    @property
    def identity(self) -> Mapping[str, Any]:
        """What all pairs hang on; a day's evidence is an input of its own."""
        return self.made_with


@dataclass(frozen=True)
class History:
    """Looks things up in a run as it stands; of what is not there yet there are no days, and nothing is settled.

    Attributes:
        run: the run.
        refresh_days: see `settled`.
        late_days: see `settled`.
        test_from: first day of the test period, from which nothing is learned.
        asked: gives the last day of the log when somebody asked to learn anew.
    """

    run: Run
    refresh_days: int
    late_days: int
    test_from: date | None
    asked: Callable[[], date | None]

    def sources(self) -> Mapping[str, Any]:
        """What was read of the log, by partition."""
        return dict(self._facts(INGEST_LOGS).get("sources", {}))

    def through(self) -> date | None:
        """The last day from which planner and click model learn; never one of the test period."""
        days = [date.fromisoformat(day) for day in self._days("impressions", "timestamp")]
        days = [day for day in days if self.test_from is None or day < self.test_from]
        if not days:
            return None
        return settled(days[0], days[-1], refresh_days=self.refresh_days, late_days=self.late_days, asked=self.asked())

    def learned_from(self, table: str, column: str, through: date | None) -> Mapping[str, str]:
        """Names the days of a table up to one, as an input."""
        return {"the settled days": key_of(until(digests(self._days(table, column)), through))}

    def learned(self, table: str) -> Tables:
        """A table that was learned from settled days; empty where nothing was learned yet."""
        return self.run.tables(table) if table in self.run.parts() else Tables.nothing(table)

    def past(self) -> Past:
        """What `mined_pairs` needs to know."""
        manifests = {stage.name: self.run.manifest(stage) for stage in BEFORE_PAIRS}
        made_with = {name: manifest.settings if manifest else {} for name, manifest in manifests.items()}
        return Past(self._facts(EVIDENCE).get("contains", {}), made_with)

    def _days(self, table: str, column: str) -> Days:
        return self.run.tables(table).by_day(table, column) if table in self.run.parts() else {}

    def _facts(self, stage: Stage) -> Mapping[str, Any]:
        manifest = self.run.manifest(stage)
        return manifest.facts if manifest else {}
