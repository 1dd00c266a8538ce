"""Partitions of a log on their way into parts: read, or taken as they were read before."""

from collections.abc import Sequence

from pipeline.artifacts import Output, Unit, key_of
from pipeline.errors import InputError
from pipeline.ingest.columns import log_columns
from pipeline.ingest.files import File
from pipeline.ingest.ledger import Ledger
from pipeline.ingest.log_plan import Planned
from pipeline.ingest.log_rows import Rules, usable
from pipeline.ingest.log_values import without_personal_data
from pipeline.ingest.partitions import Partition
from pipeline.ingest.remote import at_hand
from pipeline.ingest.staging import Staging, staging
from pipeline.ingest.tabular import read_tabular
from pipeline.ingest.tally import Tally
from pipeline.ingest.ubi import UbiFiles, read_ubi
from schemas.mining import LogSettings
from schemas.settings import IngestSettings

OTHERS = "others"


class LogReader:
    """One pass over the partitions of a log.

    Attributes:
        ledger: the rejects.
        sources: what each partition's rows hang on, by partition.
        days: the numbers of the parts that hold a day's rows, by day.
    """

    def __init__(self, path: str, output: Output, settings: LogSettings, ingest: IngestSettings, *, ubi: bool) -> None:
        self._path, self._output, self._settings, self._ingest, self._ubi = path, output, settings, ingest, ubi
        masking = without_personal_data if settings.mask_personal_data else None
        self.ledger = Ledger(output, "impressions", path, (), masking)
        self.sources: dict[str, str] = {}
        self.days: dict[str, list[int]] = {}

    def read(self, plans: list[Planned], others: list[File]) -> tuple[Tally, Tally]:
        """Read the partitions that are new and take those that stay; return the counts of all, and of the new."""
        self.ledger.expect(file for plan in plans if plan.source and not plan.stays for file in plan.source.all)
        everything, fresh = Tally(), Tally()
        for plan in plans:
            basis = self._basis(plan)
            with self._output.unit(plan.name, basis) as unit:
                if not unit.done:
                    self._fill(unit, plan)
            self._place(unit)
            self.sources[plan.name] = basis
            everything.add(Tally.of(unit.facts["tally"]))
            if basis != plan.recorded:
                fresh.add(Tally.of(unit.facts["tally"]))
        everything.add(self._turned_away(others))
        return everything, fresh

    def _turned_away(self, others: list[File]) -> Tally:
        with self._output.unit(OTHERS, key_of([file.name for file in others])) as unit:
            if not unit.done:
                for file in others:
                    self.ledger.foreign(file)
                unit.facts["tally"] = self.ledger.tally().facts()
        return Tally.of(unit.facts["tally"])

    def _basis(self, plan: Planned) -> str:
        """What the partition's unit hangs on: as it was read before, unless it is to be read again, or has to be."""
        if plan.recorded is None or not plan.stays:
            return plan.basis or ""
        if plan.basis is None or plan.basis == plan.recorded or self._output.stands(plan.name, plan.recorded):
            return plan.recorded
        return plan.basis

    def _fill(self, unit: Unit, plan: Planned) -> None:
        if plan.source is None:
            raise InputError(
                f"{plan.name} has to be read again (for other settings, or as its parts are damaged), but is gone from "
                f"{self._path}; bring its files back, or begin a new run without it"
            )
        days = []
        with staging() as staged:
            shift = self._stage(plan.source, plan.earlier, staged)
            for day, rows in staged.parts(shift):
                self._output.write("impressions", rows)
                days.append(day.isoformat())
        unit.facts |= {"tally": self.ledger.tally().facts(), "days": days}

    def _stage(self, source: Partition, earlier: Sequence[Partition], staged: Staging) -> int:
        """Stage a partition's rows; return what is to be added to their positions."""
        rules = Rules(self._settings, self._ingest, source.date)
        for file in source.others:
            self.ledger.foreign(file)
        before = [file for one in earlier for file in one.searches]
        with (
            at_hand(self._path, source.files) as files,
            at_hand(self._path, source.searches) as searches,
            at_hand(self._path, before) as searches_before,
        ):
            if self._ubi:
                read_ubi(UbiFiles(files, searches, searches_before), rules, self.ledger, staged)
            else:
                self._read_rows(files, rules, staged)
        return rules.shift(zero=staged.zero)

    def _read_rows(self, files: Sequence[File], rules: Rules, staged: Staging) -> None:
        form = None if self._settings.format == "auto" else self._settings.format
        columns = log_columns(self._settings.columns)
        for file in files:
            for block in read_tabular(file, form, columns, self.ledger, self._ingest.max_row_bytes):
                staged.add(usable(block, rules, self.ledger))

    def _place(self, unit: Unit) -> None:
        """Note which parts hold which days."""
        end = len(self._output.parts["impressions"])
        begin = end - len(unit.facts["days"])
        for number, day in enumerate(unit.facts["days"], begin):
            self.days.setdefault(day, []).append(number)
