"""Declarations of stages and their manifests."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from darklode.pipeline.base.artifacts.checksummed_json import dump_checksummed, load_checksummed
from darklode.pipeline.base.artifacts.temporary_files import TEMPORARY_SUFFIX
from darklode.schemas.table import SCHEMA_VERSION


@dataclass(frozen=True)
class Stage:
    """Declaration of a stage.

    Attributes:
        name: unique name; manifests and parts are named after it.
        version: to be increased whenever the output changes for the same input; otherwise runs keep the old output.
        reads: input tables; the stage is redone if one of them changes.
        writes: output tables.
        consults: tables that are read but do not count as inputs: the stage is not redone if they change.
    """

    name: str
    version: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    consults: tuple[str, ...] = ()

    def reading(self, *tables: str) -> "Stage":
        """A copy of the stage with additional input tables."""
        return replace(self, reads=tuple(dict.fromkeys((*self.reads, *tables))))


@dataclass(frozen=True)
class Part:
    """Rows of a table that were written together: a Parquet file, or a range of rows of a merged one (`merged_files`).

    Attributes:
        file: path relative to the run.
        rows: number of rows.
        size: size of the file in bytes.
        sha256: hex digest of the part as a file of its own; merging does not change it.
        day: earliest ISO date of the rows; None without dates and in records of older versions.
        first_row: row of the merged file at which the part begins.
        merged_rows: number of rows of the merged file; None: the part is a file of its own.
        merged_sha256: hex digest of the merged file.

    A part whose rows were deleted (`Run.clear_table`) is a range of no rows of an empty file; `sha256` still identifies
    the rows that it had, so that stages that have read them stay up to date.
    """

    file: str
    rows: int
    size: int
    sha256: str
    day: str | None = None
    first_row: int = 0
    merged_rows: int | None = None
    merged_sha256: str | None = None

    @property
    def is_merged(self) -> bool:
        """Whether it is a range of rows of a merged file."""
        return self.merged_rows is not None

    @property
    def is_cleared(self) -> bool:
        """Whether its rows were deleted."""
        return self.merged_rows == 0

    @property
    def file_sha256(self) -> str:
        """Hex digest of the file."""
        return self.merged_sha256 or self.sha256

    def as_dict(self) -> dict[str, Any]:
        """Its fields, to be written as JSON; those of a merged file only if it is one."""
        # Not `asdict`, which is ten times slower.
        return {name: value for name, value in vars(self).items() if self.is_merged or name not in MERGED_FIELDS}


MERGED_FIELDS = ("first_row", "merged_rows", "merged_sha256")
RANGE_FIELDS = ("rows", "sha256", "day", "first_row")
"""Fields in which the parts of a merged file differ."""


@dataclass(frozen=True)
class FunnelStep:
    """Numbers of rows into and out of a step, and of dropped rows by reason.

    If both units are the same (a filter), rows in must equal rows out plus dropped rows, else AssertionError.
    """

    step: str
    unit_in: str
    rows_in: int
    unit_out: str
    rows_out: int
    dropped: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unexplained = self.rows_in - self.rows_out - sum(self.dropped.values())
        if self.unit_in == self.unit_out and unexplained:
            raise AssertionError(f"{self.step}: {unexplained} rows disappeared without a reason")


FAILURE_FACT = "failure"
"""Key of the fact that a stage records if it dropped every row or did not finish; its value is the error message."""


@dataclass(frozen=True)
class Manifest:
    """The record of a complete stage; `finished` is an ISO 8601 time in UTC, empty in records of older versions."""

    stage: str
    fingerprint: str
    inputs: dict[str, str]
    settings: dict[str, Any]
    outputs: dict[str, list[Part]]
    funnel: list[FunnelStep]
    seconds: float
    facts: dict[str, Any] = field(default_factory=dict)
    units: dict[str, dict[str, Any]] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)
    finished: str = ""
    schema_version: int = SCHEMA_VERSION

    @property
    def is_unfinished(self) -> bool:
        """Whether the stage must run again, because it dropped every row or did not finish."""
        return FAILURE_FACT in self.facts

    def rows(self, table: str) -> int:
        """Rows in the files of a table, without its patch, which is a table of its own."""
        return sum(part.rows for part in self.outputs.get(table, []))

    def to_json(self) -> bytes:
        # Not `asdict`, which copies every value of every unit.
        outputs = {name: _dump_parts(parts) for name, parts in self.outputs.items()}
        return dump_checksummed(vars(self) | {"outputs": outputs, "funnel": [vars(step) for step in self.funnel]})

    @classmethod
    def from_json(cls, data: bytes) -> "Manifest":
        """Inverse of `to_json`.

        Raises:
            ValueError: the text is invalid or incomplete.
        """
        try:
            raw = load_checksummed(data)
            raw["outputs"] = {name: _load_parts(parts) for name, parts in raw["outputs"].items()}
            raw["funnel"] = [FunnelStep(**step) for step in raw["funnel"]]
            return cls(**raw)
        except (ValueError, TypeError, KeyError, AttributeError, AssertionError) as error:
            raise ValueError(f"invalid manifest: {error}") from error


def _dump_parts(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Parts for a manifest; consecutive parts of a merged file share an entry."""
    entries: list[dict[str, Any]] = []
    for part in parts:
        entry = part.as_dict()
        if part.is_merged:
            values = [entry.pop(name) for name in RANGE_FIELDS]
            if not entries or entries[-1]["file"] != part.file:
                entries.append(entry | {"parts": []})
            entries[-1]["parts"].append(values)
        else:
            entries.append(entry)
    return entries


def _load_parts(entries: Sequence[dict[str, Any]]) -> list[Part]:
    """Inverse of `_dump_parts`."""
    parts: list[Part] = []
    for entry in entries:
        file_fields = {name: value for name, value in entry.items() if name != "parts"}
        ranges = (
            [dict(zip(RANGE_FIELDS, values, strict=True)) for values in entry["parts"]] if "parts" in entry else [{}]
        )
        parts += [Part(**file_fields, **fields) for fields in ranges]
    return parts


@dataclass(frozen=True)
class Plan:
    """A stage with its current inputs, and whether it must run.

    Attributes:
        inputs: fingerprints of tables and other inputs, by name.
        settings: settings that the stage depends on.
        reason: why the stage must run; None if it is up to date.
        bounds: settings that only decide whether the stage fails; finished units stay valid when they change.
    """

    stage: Stage
    fingerprint: str
    inputs: dict[str, str]
    settings: dict[str, Any]
    reason: str | None
    bounds: frozenset[str] = frozenset()

    @property
    def is_up_to_date(self) -> bool:
        return self.reason is None

    @property
    def shaping(self) -> dict[str, Any]:
        """Settings that can change a row of the output; units of work are reused only if these are equal."""
        return {name: value for name, value in self.settings.items() if name not in self.bounds}


def fingerprint(stage: Stage, inputs: dict[str, str], settings: dict[str, Any]) -> str:
    """Hash of everything that can change the output: stage, version, inputs and settings."""
    return key_of(SCHEMA_VERSION, stage.name, stage.version, inputs, settings)


Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A JSON value; scalars of pyarrow or NumPy are not allowed."""


KEY_DIGITS = 16


def key_of(*basis: Json) -> str:
    """Hash of plain values, 16 hex digits."""
    return hashlib.sha256(json.dumps(basis, sort_keys=True).encode()).hexdigest()[:KEY_DIGITS]


def part_file(table: str, stage: str, number: int, sha256: str, partition: str = "") -> str:
    """File name of a part, which contains a hash of its content. `partition` is a folder such as `2026-03-01`."""
    folder = f"tables/{table}/{partition}" if partition else f"tables/{table}"
    return f"{folder}/{stage}-{number:05d}-{sha256[:8]}.parquet"


def partition_of(file: str) -> str:
    """The partition of a part's file; empty if its table has none."""
    return "/".join(file.split("/")[2:-1])


def table_of(file: str) -> str:
    """The table of a part's file."""
    return file.split("/")[1]


def partition_name(values: Mapping[str, object]) -> str:
    """Folders that name column values, such as `tenant-acme/date-2026-03-01`, escaped for any value.

    Not Hive's `tenant=acme`: the files also contain the columns, and pyarrow and pandas refuse a column that occurs in
    both.
    """
    return "/".join(f"{column}-{quote(str(value), safe='')}" for column, value in values.items())


def partition_values(partition: str) -> dict[str, str]:
    """Column values named by folders of `partition_name`; a folder such as `2026-03-01` names none."""
    pairs = (folder.partition("-") for folder in partition.split("/") if "-" in folder)
    return {column: unquote(value) for column, _, value in pairs if not column.isdecimal()}


def parts_of(stage: str) -> re.Pattern[str]:
    """Pattern of a stage's part files and of leftovers of killed writes."""
    return re.compile(rf"\.?{re.escape(stage)}-\d{{5,}}-[0-9a-f]{{8}}\.parquet({TEMPORARY_SUFFIX})?")


def difference(manifest: Manifest, inputs: dict[str, str], settings: dict[str, Any]) -> str:
    """Describe what changed since a stage was last complete, for the user."""
    previous = manifest.settings
    current = json.loads(json.dumps(settings))  # as in a manifest: tuples become lists
    changes = [f"{name} changed" for name in manifest.inputs | inputs if manifest.inputs.get(name) != inputs.get(name)]
    changes += [
        f"{key}: {previous.get(key)!r} → {current.get(key)!r}"
        for key in previous | current
        if previous.get(key) != current.get(key)
    ]
    return "; ".join(changes) or "Darklode's own code changed"


def digest(parts: list[Part]) -> str:
    """Fingerprint of a table by its parts."""
    return key_of(*(part.sha256 for part in parts))
