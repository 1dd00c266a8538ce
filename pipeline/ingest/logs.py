"""Stage 1 of `mine-logs`: search logs, day by day, as one table of impressions."""

from collections.abc import Collection, Mapping
from datetime import date
from typing import Any

from pipeline.artifacts import Output, Stage
from pipeline.ingest.files import File, listing
from pipeline.ingest.log_plan import planned
from pipeline.ingest.log_reader import LogReader
from pipeline.ingest.partitions import Partition, is_ubi, partitions_of, without_markers
from pipeline.ingest.times import check_zone
from schemas.mining import LogSettings
from schemas.settings import IngestSettings

INGEST_LOGS = Stage("ingest_logs", 1, (), ("impressions",))


def ingest_logs(
    path: str,
    output: Output,
    settings: LogSettings,
    ingest: IngestSettings,
    *,
    dates: Collection[date] | None = None,
    known: Mapping[str, Any] | None = None,
) -> None:
    """Read search logs into `impressions`, a unit for each partition; what cannot be read goes to `rejects`.

    Each part holds rows of one day (UTC). The facts say which: `days` has the numbers of the parts of `impressions`
    by day, and `sources` the basis of each partition, which the next run wants to know. Memory holds a part's rows
    (262,144), and for UBI the queries of a partition; the rows of a partition wait in DuckDB, which spills to disk.

    Args:
        path: a file, a folder or an `s3://` prefix.
        output: where the rows go.
        settings: how the log is read.
        ingest: the tenant, the longest row, and the share of rejects that passes.
        dates: read only the partitions of these days, besides those read before; None: all.
        known: `facts["sources"]` of the last complete run: what was read then stays, even when its files are gone.

    Raises:
        SettingsError: the time zone is not known.
        InputError: there is nothing to read, a day has no partition, a file cannot be read at all or lacks a column,
            or a partition has to be read again whose files are gone.
        TooManyRejects: more than `ingest.max_reject_share` of the rows that are new cannot be read.
    """
    check_zone(settings.time_zone)
    files = without_markers(listing(path, remote=True))
    partitions = partitions_of(files, settings.format)
    ubi = is_ubi(files, settings.format)
    plans = planned(partitions, dates, known or {}, settings.late_days if ubi else 0)
    reader = LogReader(path, output, settings, ingest, ubi=ubi)
    everything, fresh = reader.read(plans, _others(files, partitions))
    columns, share = reader.ledger.kind.columns, ingest.max_reject_share
    checked, bound = (fresh, share) if fresh.own else (everything, 1)
    checked.check(path, "impressions", columns, bound)
    output.count(everything.step("impressions"))
    output.facts["sources"] = reader.sources
    output.facts["days"] = {day: reader.days[day] for day in sorted(reader.days)}


def log_sources(
    path: str, settings: LogSettings, dates: Collection[date] | None, known: Mapping[str, Any]
) -> dict[str, str | None]:
    """What `ingest_logs` would read, without reading it: the basis of each partition, by name.

    Raises:
        InputError: there is nothing to read, or a day has no partition.
    """
    files = without_markers(listing(path, remote=True))
    late_days = settings.late_days if is_ubi(files, settings.format) else 0
    plans = planned(partitions_of(files, settings.format), dates, known, late_days)
    return {plan.name: plan.recorded if plan.stays else plan.basis for plan in plans}


def _others(files: list[File], partitions: Mapping[str, Partition]) -> list[File]:
    inside = {file.name for partition in partitions.values() for file in partition.all}
    return [file for file in files if file.name not in inside]
