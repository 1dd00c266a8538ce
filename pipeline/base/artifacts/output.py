"""Output of a stage: table parts, rejects (dropped rows) and funnel steps, written in resumable units of work."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts.database import pieces
from darklode.pipeline.base.artifacts.integrity import IntegrityCheck
from darklode.pipeline.base.artifacts.merged_files import MonthMerger, PartReader, is_small
from darklode.pipeline.base.artifacts.parquet_writer import (
    FILE_BYTES,
    GROUP_ROWS,
    TABLE_GROUP_ROWS,
    Packing,
    encode,
    first_day,
)
from darklode.pipeline.base.artifacts.stage import (
    KEY_DIGITS,
    FunnelStep,
    Manifest,
    Part,
    Plan,
    part_file,
    partition_of,
    partition_values,
)
from darklode.pipeline.base.artifacts.store import Store
from darklode.pipeline.base.artifacts.tables import Tables
from darklode.pipeline.base.artifacts.units import State, Unit, dump_unit_record, parse_unit_record, unit_of
from darklode.pipeline.base.artifacts.unwritten_files import UnwrittenFiles
from darklode.schemas.table import SCHEMA_VERSION
from darklode.schemas.tables import REJECTS, TABLES

Report = Callable[[int, int | None, str], None]

PART_ROWS = 1 << 18
"""Rows per part if a stage streams its rows; such parts have some ten megabytes."""

RESULT_ROWS = 1 << 19
"""Rows per part for results of DuckDB queries, which hold ids and numbers but no texts."""

PAYLOAD_CHARACTERS = 500
"""Characters of a row kept in `rejects`: enough to recognize it."""


class Output:
    """The open outputs of a running stage. Parts keep the order in which they are written.

    Args:
        store: files of the run.
        plan: the stage and its inputs.
        before: manifest of the stage's last complete run; its units are reused if their basis is the same.
        report: progress callback; receives done, total (None if unknown) and a note.
    """

    def __init__(self, store: Store, plan: Plan, before: Manifest | None, report: Report) -> None:
        self._store = store
        self._intact = IntegrityCheck(store)
        self._sound_files: set[str] = set()
        self._unwritten = UnwrittenFiles(store)
        self._reader = PartReader(self._intact, self._unwritten.parts)
        self._plan = plan
        self._before = before
        self._previous_units: Mapping[str, Mapping[str, Any]] = before.units if before else {}
        self._numbers: Counter[str] = Counter()
        self._report = report
        key_basis = [SCHEMA_VERSION, plan.stage.name, plan.stage.version, plan.shaping]
        self._key_prefix = json.dumps(key_basis, sort_keys=True).removesuffix("]")
        self._unit: Unit | None = None
        self.parts: dict[str, list[Part]] = defaultdict(list)
        self.funnel: list[FunnelStep] = []
        self.facts: dict[str, Any] = {}
        self.units: dict[str, dict[str, Any]] = {}

    def write(self, table: str, rows: pa.Table, partition: str = "", day: str | None = None) -> None:
        """Write rows as one part; no rows write nothing.

        Args:
            table: one that the stage declares.
            rows: in the table's schema.
            partition: folder of the table, such as `2026-03-01`, with its own part numbers. A folder made by
                `partition_name`, such as `tenant-acme`, accepts rows with that value only.
            day: ISO date that rows without dates belong to.

        Raises:
            ValueError: the table is not declared, the schema differs, or the rows do not belong to the partition.
        """
        self._check(table, rows, partition)
        if rows.num_rows:
            self._add(table, encode(rows), rows.num_rows, partition, day=first_day(rows) or day)

    def _check(self, table: str, rows: pa.Table, partition: str) -> None:
        if table not in (*self._plan.stage.writes, REJECTS.name):
            raise ValueError(f"stage {self._plan.stage.name} does not declare the table {table}")
        if not rows.schema.equals(TABLES[table].schema):
            raise ValueError(f"rows do not have the schema of {table}: {rows.schema}")
        for column, value in partition_values(partition).items():
            differing = rows.filter(pc.not_equal(pc.fill_null(rows[column].cast(pa.string()), ""), value))
            if differing.num_rows:
                other = differing[column][0].as_py()
                raise ValueError(f"{table}: a row of {column} {other!r} was to be written to the folder {partition}")

    @contextmanager
    def packed_writer(self, table: str, *partitions: str) -> Iterator[Callable[[pa.Table, str], None]]:
        """Write streamed rows as files of the size that trainers prefer, see `Packing`.

        Args:
            table: one that the stage declares.
            partitions: all folders that rows go to; their last files are written in this order.

        Yields:
            A function that takes rows and their partition.

        Raises:
            ValueError: as for `write`.
        """

        packings = {
            partition: Packing(self._part_adder(table, partition), group_rows=GROUP_ROWS, file_bytes=FILE_BYTES)
            for partition in partitions
        }

        def add_rows(rows: pa.Table, partition: str) -> None:
            self._check(table, rows, partition)
            packings[partition].write(rows)

        yield add_rows
        for packing in packings.values():
            packing.close()

    @contextmanager
    def row_group_writer(self, table: str, part_rows: int, partition: str = "") -> Iterator[Callable[[pa.Table], None]]:
        """Write streamed rows in parts of a fixed number of rows: the same files as with `write`.

        Args:
            table: one that the stage declares.
            part_rows: rows of each part but the last.
            partition: as for `write`.

        Yields:
            A function that takes rows. Memory is bounded by a row group and the bytes of a part.

        Raises:
            ValueError: as for `write`.
        """
        packing = Packing(
            self._part_adder(table, partition),
            group_rows=TABLE_GROUP_ROWS,
            file_rows=part_rows,
        )

        def add_rows(rows: pa.Table) -> None:
            self._check(table, rows, partition)
            packing.write(rows)

        yield add_rows
        packing.close()

    def _part_adder(self, table: str, partition: str) -> Callable[..., Part]:
        """Callback for `Packing` that adds finished files to a table and partition."""
        return partial(self._add, table, partition=partition)

    def write_answer(
        self,
        table: str,
        connection: duckdb.DuckDBPyConnection,
        query: str,
        parameters: Mapping[str, object],
        partition: str = "",
    ) -> None:
        """Write the result of an ordered query in parts of `RESULT_ROWS` rows.

        Args:
            table: table that the stage declares; the query must return its columns, in order.
            connection: DuckDB connection with the tables of the query.
            query: SQL with ORDER BY; without it, parts could differ from run to run.
            parameters: values of the query's parameters.
            partition: as for `write`.
        """
        with self.row_group_writer(table, RESULT_ROWS, partition) as write_rows:
            for rows in pieces(connection, query, parameters, TABLE_GROUP_ROWS):
                write_rows(rows.cast(TABLES[table].schema))

    def previous_tables(self, *tables: str) -> Tables | None:
        """Output of the stage's last complete run, even if its inputs were different.

        None if it is missing or damaged, or if an earlier version wrote it with other columns.
        """
        if self._before is None:
            return None
        parts = {name: self._before.outputs.get(name, []) for table in tables for name in TABLES[table].files}
        damaged = any(self._intact.find_damaged(name, table_parts) for name, table_parts in parts.items())
        earlier_tables = Tables(self._store, parts)
        return earlier_tables if not damaged and all(map(earlier_tables.has_current_columns, parts)) else None

    @property
    def earlier_facts(self) -> Mapping[str, Any]:
        """The facts of the stage's last complete run; empty if there is none."""
        return self._before.facts if self._before else {}

    def reuse_part(self, table: str, part: Part) -> None:
        """List a part of the stage's last complete run in this run's output, without copying it."""
        self._numbers[_folder(table, partition_of(part.file))] += 1
        self.parts[table].append(part)

    def reject(self, stage: str, table: str, columns: dict[str, Any]) -> None:
        """Record dropped rows with columns of `rejects`; stage and table are added, payloads truncated."""
        length = len(next(iter(columns.values())))
        reject_columns = {"stage": pa.repeat(stage, length), "table": pa.repeat(table, length)}
        rows = REJECTS.rows(reject_columns | columns)
        payload_index = rows.schema.get_field_index("payload")
        payloads = pc.utf8_slice_codeunits(rows["payload"], 0, PAYLOAD_CHARACTERS)
        self.write(REJECTS.name, rows.set_column(payload_index, rows.schema.field(payload_index), payloads))

    def rows(self, table: str) -> int:
        """Number of rows written to a table so far, with its patch (changed and removed rows) applied."""
        return Tables(self._store, {name: self.parts[name] for name in TABLES[table].files}).rows(table)

    def current_tables(self, table: str) -> Tables:
        """Open the parts of a table that were written so far."""
        self.flush()
        return Tables(self._store, {name: list(self.parts[name]) for name in TABLES[table].files})

    def count(self, step: FunnelStep) -> None:
        """Add a step to the funnel."""
        self.funnel.append(step)

    def progress(self, done: int, total: int | None = None, note: str = "") -> None:
        """Report progress; `total` is None if unknown."""
        self._report(done, total, note)

    def unit_key(self, name: str, basis: str) -> str:
        """Key of a unit, a hash; see `unit`. Settings that cannot change a row are not part of it."""
        # As `key_of`, but the settings are serialized once, not for each of a year's days.
        text = f"{self._key_prefix}, {json.dumps(name)}, {json.dumps(basis)}]"
        return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]

    def is_done(self, name: str, basis: str) -> bool:
        """Whether `unit` will find this work done, for stages that need to know before opening the first unit."""
        unit = self._find_record(self.unit_key(name, basis))
        return unit is not None and all(self._is_sound(part) for parts in unit.parts.values() for part in parts)

    def is_recorded(self, name: str, basis: str) -> bool:
        """Whether a record of the unit exists; unlike `is_done`, does not verify its parts, which could be damaged."""
        return self._find_record(self.unit_key(name, basis)) is not None

    def state(self, name: str, basis: str) -> State:
        """Saved state of a unit, see `State`; other settings or another basis have another state."""
        return State(self._store, f"progress/{self._plan.stage.name}/{self.unit_key(name, basis)}.state")

    @contextmanager
    def unit(self, name: str, basis: str) -> Iterator[Unit]:
        """Open a unit of work. If the unit is not `done`, write its parts inside the block.

        Args:
            name: name of the unit, unique within the stage.
            basis: hash of everything the unit depends on, besides stage, version and settings. If something is
                missing in it, outdated parts are reused.
        """
        key = self.unit_key(name, basis)
        previous_unit = self._find(key)
        self._unit = previous_unit or Unit(done=False)
        try:
            yield self._unit
        finally:
            unit, self._unit = self._unit, None
        ends = {table: len(self.parts[table]) for table in unit.parts}
        places = {table: [ends[table] - len(parts), ends[table]] for table, parts in unit.parts.items()}
        self.units[key] = {"parts": places, "facts": unit.facts}
        if not previous_unit:
            self._unwritten.write_record(self._record(key), dump_unit_record(unit))

    def read_unit(self, unit: Unit, table: str) -> pa.Table:
        """The rows that a unit wrote to a table, now or earlier."""
        return self.read_parts(table, unit.parts.get(table, []))

    def read_parts(self, table: str, parts: Iterable[Part]) -> pa.Table:
        """The rows of parts of finished units."""
        return pa.concat_tables([TABLES[table].empty(), *map(self._reader.read, parts)])

    def _record(self, key: str) -> str:
        return f"progress/{self._plan.stage.name}/{key}.json"

    def _find_record(self, key: str) -> Unit | None:
        """A unit of this run, a killed one, or the last complete one, with its parts as they were."""
        if key in self.units:  # equal work, as of two equal parts
            return unit_of(self.units[key], self.parts)
        data = self._store.read(self._record(key)) if self._record(key) in self._records else None
        if data:
            record = parse_unit_record(data)
            return unit_of(record, {}) if record else None
        record = self._previous_units.get(key)
        return unit_of(record, self._before.outputs) if record and self._before else None

    @cached_property
    def _records(self) -> Collection[str]:
        """Names of the records that a killed run left."""
        return self._store.sizes(f"progress/{self._plan.stage.name}")

    def _find(self, key: str) -> Unit | None:
        record = self._find_record(key)
        if record is None:
            return None
        unit = Unit(done=True, facts=record.facts)
        for table, parts in record.parts.items():
            reused = [self._reuse_file(table, part) for part in parts]
            unit.parts[table] = [part for part in reused if part]
            if len(unit.parts[table]) != len(parts):
                self._discard(unit)
                return None
        return unit

    def _reuse_file(self, table: str, part: Part) -> Part | None:
        """Reuse a part under its number in this run; None if it is missing or damaged."""
        partition = partition_of(part.file)
        if part.is_merged:  # the number of its file is checked at the end
            return self._append(table, part, partition) if self._is_sound(part) else None
        renamed = replace(part, file=self._next_file(table, part.sha256, partition))
        if renamed.file == part.file:
            return self._append(table, part, partition) if self._is_sound(part) else None
        data = self._unwritten.parts.get(part.file) or self._intact.read(part)
        if data is None:
            return None
        self._store.write(renamed.file, data)
        return self._append(table, renamed, partition)

    def _is_sound(self, part: Part) -> bool:
        """Whether a part's file is intact; each file is checked once."""
        if part.file not in self._sound_files and self._intact.is_sound(part):
            self._sound_files.add(part.file)
        return part.file in self._sound_files

    def _discard(self, unit: Unit) -> None:
        for table, parts in unit.parts.items():
            del self.parts[table][len(self.parts[table]) - len(parts) :]
            self._numbers.subtract(_folder(table, partition_of(part.file)) for part in parts)

    def _add(
        self, table: str, data: bytes | memoryview, rows: int, partition: str = "", *, day: str | None = None
    ) -> Part:
        """Write a part's file and append the part."""
        sha = hashlib.sha256(data).hexdigest()
        part = Part(self._next_file(table, sha, partition), rows, len(data), sha, day)
        if is_small(rows, day, partition):
            self._unwritten.add_part(part.file, memoryview(data))
        else:
            self._store.write(part.file, data)
        return self._append(table, part, partition)

    def _next_file(self, table: str, sha: str, partition: str) -> str:
        return part_file(table, self._plan.stage.name, self._numbers[_folder(table, partition)], sha, partition)

    def _append(self, table: str, part: Part, partition: str) -> Part:
        self._numbers[_folder(table, partition)] += 1
        self.parts[table].append(part)
        if self._unit is not None:
            self._unit.parts.setdefault(table, []).append(part)
        return part

    def close(self) -> dict[str, list[Part]]:
        """Write an empty part for each declared table without one, so that its file pattern always matches, and merge
        the parts of past months; returns all parts.
        """
        for table in self._plan.stage.writes:
            if not self.parts[table]:
                self._add(table, encode(TABLES[table].empty()), 0)
        merger = MonthMerger(self._plan.stage.name, self._reader, self._store.write)
        merged_parts = {table: merger.merge(table, parts) for table, parts in self.parts.items()}
        unwritten_files = self._unwritten.parts
        for file in {part.file for parts in merged_parts.values() for part in parts} & unwritten_files.keys():
            self._store.write(file, unwritten_files[file])
        self._unwritten.drop()
        return merged_parts

    def flush(self) -> None:
        """Write the small files of finished units that wait to be written together."""
        self._unwritten.write()


def _folder(table: str, partition: str) -> str:
    return f"{table}/{partition}"
