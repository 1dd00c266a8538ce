"""Declarations of stages and their manifests."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from darklode.pipeline.base.artifacts.checksummed_json import dump_checksummed, load_checksummed
from darklode.pipeline.base.artifacts.temporary_files import TEMPORARY
from darklode.schemas.table import SCHEMA_VERSION


@dataclass(frozen=True)
class Stage:
    """A stage's name, inputs and outputs. Increase `version` whenever the output changes for the same input.

    Attributes:
        consults: tables that are read but do not count as inputs: changes in them redo nothing.
    """

    name: str
    version: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    consults: tuple[str, ...] = ()

    def reading(self, *tables: str) -> "Stage":
        """The same stage with additional inputs."""
        return replace(self, reads=tuple(dict.fromkeys((*self.reads, *tables))))


@dataclass(frozen=True)
class Part:
    """One Parquet file of a table; `day` is the ISO date of its first rows, if they have one.

    Records of older versions have no day.
    """

    file: str
    rows: int
    size: int
    sha256: str
    day: str | None = None


@dataclass(frozen=True)
class FunnelStep:
    """Rows into and out of one step, and dropped rows by reason. For filters, the numbers add up."""

    step: str
    unit_in: str
    rows_in: int
    unit_out: str
    rows_out: int
    dropped: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lost = self.rows_in - self.rows_out - sum(self.dropped.values())
        if self.unit_in == self.unit_out and lost:
            raise AssertionError(f"{self.step}: {lost} rows disappeared without a reason")


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

    def rows(self, table: str) -> int:
        """Rows in the files of a table, without its patch, which is a table of its own."""
        return sum(part.rows for part in self.outputs.get(table, []))

    def to_json(self) -> bytes:
        return dump_checksummed(asdict(self))

    @classmethod
    def from_json(cls, data: bytes) -> "Manifest":
        """Inverse of `to_json`.

        Raises:
            ValueError: the text is invalid or incomplete.
        """
        try:
            raw = load_checksummed(data)
            raw["outputs"] = {name: [Part(**part) for part in parts] for name, parts in raw["outputs"].items()}
            raw["funnel"] = [FunnelStep(**step) for step in raw["funnel"]]
            return cls(**raw)
        except (ValueError, TypeError, KeyError, AttributeError, AssertionError) as error:
            raise ValueError(f"invalid manifest: {error}") from error


@dataclass(frozen=True)
class Plan:
    """A stage's inputs, whether it is up to date, and if not, why.

    Attributes:
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
        """The settings that can change a row."""
        return {name: value for name, value in self.settings.items() if name not in self.bounds}


def fingerprint(stage: Stage, inputs: dict[str, str], settings: dict[str, Any]) -> str:
    """Hash of everything that can change the output: stage, version, inputs and settings."""
    return key_of(SCHEMA_VERSION, stage.name, stage.version, inputs, settings)


Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""What JSON can hold; scalars of pyarrow or NumPy are not allowed."""


def key_of(*basis: Json) -> str:
    """A short hash of plain values."""
    return hashlib.sha256(json.dumps(basis, sort_keys=True).encode()).hexdigest()[:16]


def part_file(table: str, stage: str, number: int, sha256: str, partition: str = "") -> str:
    """File name of a part: other content gets another name. `partition` is a folder such as `2026-03-01`."""
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
    return re.compile(rf"\.?{re.escape(stage)}-\d{{5,}}-[0-9a-f]{{8}}\.parquet({TEMPORARY})?")


def difference(manifest: Manifest, inputs: dict[str, str], settings: dict[str, Any]) -> str:
    """What changed since a stage was last complete, in words."""
    before, now = manifest.settings, json.loads(json.dumps(settings))
    changed = [f"{name} changed" for name in manifest.inputs | inputs if manifest.inputs.get(name) != inputs.get(name)]
    changed += [
        f"{key}: {before.get(key)!r} → {now.get(key)!r}" for key in before | now if before.get(key) != now.get(key)
    ]
    return "; ".join(changed) or "Darklode's own code changed"


def digest(parts: list[Part]) -> str:
    """Fingerprint of a table by its parts."""
    return key_of(*(part.sha256 for part in parts))
