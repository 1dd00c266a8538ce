"""A run: its manifests determine which stages are complete, which are up to date, and which must be redone and why."""

import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import Any

from filelock import FileLock, Timeout

from darklode.pipeline.base.artifacts.integrity import IntegrityCheck
from darklode.pipeline.base.artifacts.output import Output, Report
from darklode.pipeline.base.artifacts.parquet_writer import encode
from darklode.pipeline.base.artifacts.s3_lease import LeaseRecord, RunLease, hold_s3_lease, refusal
from darklode.pipeline.base.artifacts.stage import (
    FAILURE_FACT,
    Manifest,
    Part,
    Plan,
    Stage,
    difference,
    fingerprint,
    key_of,
    part_file,
    parts_of,
)
from darklode.pipeline.base.artifacts.store import LOCK_FILE, ReadOnlyStore, Store, explain_write_errors
from darklode.pipeline.base.artifacts.tables import Tables, content, select_tables
from darklode.pipeline.base.artifacts.temporary_files import new_lease
from darklode.pipeline.base.errors import ArtifactError, DarklodeError, EverythingDropped, StageUnfinished
from darklode.schemas.tables import TABLES

RECORDED_PACKAGES = ("darklode", "pyarrow", "duckdb", "numpy", "scikit-learn")
"""Packages whose versions are recorded in manifests."""


@cache  # installed versions do not change during a process, and reading them takes as long as a small stage
def _software() -> dict[str, str]:
    return {name: version(name) for name in RECORDED_PACKAGES}


def no_progress(_done: int, _total: int | None, _note: str) -> None:
    """Progress callback that does nothing."""


class Run:
    """A run's folder or `s3://` prefix.

    Args:
        url: the folder or prefix.
        untouched: write nothing, not even verification stamps.
    """

    def __init__(self, url: str, *, untouched: bool = False) -> None:
        self.store = ReadOnlyStore(url) if untouched else Store(url)
        self._intact = IntegrityCheck(self.store)
        self._s3_lease: RunLease | None = None
        self._table_files: dict[str, list[str]] | None = None
        self._parsed: dict[str, tuple[bytes, Manifest]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_s3_lease": None}  # another process does not hold it

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Prevent a second process from writing to the same run.

        The lock of a killed process is released by the system in a folder; on S3 it expires (`s3_lease`).

        Raises:
            ArtifactError: another process is writing to the run.
            NotWritable: the folder cannot be created or written to.
        """
        if self.store.local is None:
            with self._hold_s3_lease(), self.store.cache_listings():
                yield
            return
        self.store.prepare()
        lock_file = self.store.local / LOCK_FILE
        run_lock = FileLock(lock_file, timeout=0)
        owner = LeaseRecord.parse(self.store.read(LOCK_FILE) or b"")  # before the attempt: filelock 3 empties the file
        try:
            with explain_write_errors(lock_file):
                run_lock.acquire()
        except Timeout as error:
            is_known = owner is not None and not owner.is_abandoned  # else that of a killed process
            raise ArtifactError(refusal(owner if is_known else None, self.store.url)) from error
        try:
            with suppress(OSError):  # Windows does not write to a locked file
                lock_file.write_bytes(LeaseRecord.of_this_process().dump())
            with self.store.hold_lease(new_lease()):
                yield
        finally:
            run_lock.release()

    @contextmanager
    def _hold_s3_lease(self) -> Iterator[None]:
        """Hold the lease of a run on S3, which `execute` confirms before it writes a manifest."""
        with hold_s3_lease(self.store.path(LOCK_FILE), self.store.url) as lease:
            self._s3_lease = lease
            try:
                yield
            finally:
                self._s3_lease = None

    def manifests(self) -> dict[str, Manifest]:
        """Manifests of all complete stages, by stage.

        Raises:
            ArtifactError: a manifest is invalid.
        """
        manifests = {}
        for name in sorted(self.store.sizes("manifests")):
            if name.endswith(".json"):
                manifest = self._parse(name, self.store.read(name) or b"")
                manifests[manifest.stage] = manifest
        return manifests

    def _parse(self, name: str, data: bytes) -> Manifest:
        """The manifest in a file; parsed once, since every plan reads all manifests. Callers must not change it."""
        known = self._parsed.get(name)
        if known and known[0] == data:
            return known[1]
        try:
            manifest = Manifest.from_json(data)
            self._parsed[name] = (data, manifest)
            return manifest
        except ValueError as error:
            message = f"{self.store.path(name)} is damaged ({error}); delete it and run the same command again"
            raise ArtifactError(message) from error

    def manifests_hash(self) -> str:
        """Hash of all manifests: changes when any stage was run again."""
        names = [name for name in sorted(self.store.sizes("manifests")) if name.endswith(".json")]
        return key_of(*(hashlib.sha256(self.store.read(name) or b"").hexdigest() for name in names))

    def parts(self) -> dict[str, list[Part]]:
        """Parts of every table of a complete stage."""
        tables: dict[str, list[Part]] = {}
        for _, manifest in sorted(self.manifests().items()):
            for table, parts in manifest.outputs.items():
                tables.setdefault(table, []).extend(parts)
        return tables

    def tables(self, *names: str) -> Tables:
        """Open tables for reading; without names, all tables.

        Raises:
            ArtifactError: no complete stage has written a table.
        """
        parts = self.parts()
        missing = [name for name in names if name not in parts]
        if missing:
            missing_names = ", ".join(missing)
            raise ArtifactError(f"{self.store.url} has no table {missing_names} yet; run its command to completion")
        return Tables(self.store, select_tables(parts, *names) if names else parts)

    def plan(
        self,
        stage: Stage,
        settings: Mapping[str, Any],
        external: Mapping[str, str] | None = None,
        bounds: frozenset[str] = frozenset(),
    ) -> Plan:
        """Compare a stage's inputs and settings with its manifest, to decide whether the stage must run.

        Args:
            stage: the stage to plan.
            settings: settings that the stage depends on, as plain values.
            external: fingerprints of inputs that are not tables, such as files, by name.
            bounds: names of settings that only decide whether the stage fails.
        """
        parts = self.parts()
        inputs = dict(external or {}) | {name: content(parts, name) for name in stage.reads if name in parts}
        stage_fingerprint = fingerprint(stage, inputs, dict(settings))
        reason = self._redo_reason(stage, stage_fingerprint, inputs, dict(settings))
        return Plan(stage, stage_fingerprint, inputs, dict(settings), reason, bounds)

    def manifest(self, stage: Stage) -> Manifest | None:
        """A stage's manifest, or None if it is not complete."""
        name = _manifest_file(stage.name)
        data = self.store.read(name)
        return None if data is None else self._parse(name, data)

    def is_outdated(self, stage: Stage) -> bool:
        """Whether a table that a complete stage read has changed since."""
        manifest, parts = self.manifest(stage), self.parts()
        inputs = {} if manifest is None else {name: key for name, key in manifest.inputs.items() if name in TABLES}
        return any(name not in parts or content(parts, name) != key for name, key in inputs.items())

    def _redo_reason(
        self, stage: Stage, stage_fingerprint: str, inputs: dict[str, str], settings: dict[str, Any]
    ) -> str | None:
        """Why the stage must run, as shown to the user; None if it is up to date."""
        manifest = self.manifest(stage)
        if manifest is None:
            return "not run yet"
        if manifest.fingerprint != stage_fingerprint:
            return difference(manifest, inputs, settings)
        if manifest.is_unfinished:
            return "it did not finish"
        return self._damage_error(manifest)

    def _damage_error(self, manifest: Manifest) -> str | None:
        """Message about the first damaged output file; None if all are intact."""
        for table, parts in manifest.outputs.items():
            for file in self._intact.find_damaged(table, parts):
                return f"{file} is missing or damaged"
        return None

    def execute(self, plan: Plan, work: Callable[[Tables, Output], None], report: Report = no_progress) -> Manifest:
        """Execute a stage's work, write its manifest last, then delete files that the manifest no longer names.

        Raises:
            EverythingDropped, StageUnfinished: the output is written, and the stage is not up to date.
        """
        stage = plan.stage
        start_time = time.perf_counter()
        self.store.mark_shared("progress")
        previous_manifest = self.manifest(stage)
        output = Output(self.store, plan, previous_manifest, report)
        failure: DarklodeError | None = None
        try:
            work(self._open_inputs(stage), output)
        except (EverythingDropped, StageUnfinished) as error:  # the manifest is written anyway: its tables say why
            failure = error
            output.facts[FAILURE_FACT] = str(error)
        except BaseException:  # finished units survive a failure
            output.flush()
            raise
        outputs = output.close()
        seconds = round(time.perf_counter() - start_time, 3)
        manifest = Manifest(
            stage=stage.name,
            fingerprint=plan.fingerprint,
            inputs=plan.inputs,
            settings=plan.settings,
            outputs=outputs,
            funnel=output.funnel,
            seconds=seconds,
            facts=output.facts,
            units=output.units,
            software=dict(_software()),
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        name = _manifest_file(stage.name)
        if self._s3_lease:
            self._s3_lease.confirm()
        # Another process may have written meanwhile if it runs without a lock, or on S3 without conditional writes.
        current_data = self.store.read_now(name)
        if (None if current_data is None else self._parse(name, current_data)) != previous_manifest:
            message = f"another process has just finished {stage.name} in {self.store.url}; run the same command again"
            raise ArtifactError(message)
        self.store.write(name, manifest.to_json())
        self.delete_old_parts(manifest)
        if failure:
            raise failure
        return manifest

    def clear_table(self, stage: Stage, table: str) -> None:
        """Delete the rows of a table that nothing needs any more; the stages that write and read it stay up to date.

        The table is empty afterwards. The stage's units are forgotten: if it runs again, it repeats all its work.

        Args:
            stage: a complete stage; nothing happens if it is not.
            table: one of the tables that it writes.
        """
        manifest = self.manifest(stage)
        if manifest is None:
            return
        if manifest.rows(table):
            data = encode(TABLES[table].empty())
            sha256 = hashlib.sha256(data).hexdigest()
            file = part_file(table, stage.name, 0, sha256)
            self.store.write(file, data)
            parts = [
                replace(part, file=file, rows=0, size=len(data), first_row=0, merged_rows=0, merged_sha256=sha256)
                for part in manifest.outputs[table]
            ]
            manifest = replace(manifest, outputs=manifest.outputs | {table: parts}, units={})
            if self._s3_lease:
                self._s3_lease.confirm()
            self.store.write(_manifest_file(stage.name), manifest.to_json())
        self.delete_old_parts(manifest)

    def is_cleared(self, stage: Stage, table: str) -> bool:
        """Whether rows of a complete stage's table were deleted by `clear_table`."""
        manifest = self.manifest(stage)
        return manifest is not None and any(part.is_cleared for part in manifest.outputs[table])

    def forget(self, stage: Stage) -> None:
        """Delete a stage's manifest, so that the stage runs again."""
        self.store.delete(_manifest_file(stage.name))

    def _open_inputs(self, stage: Stage) -> Tables:
        """Open the tables that a stage reads, and those it consults as far as they exist."""
        parts = self.parts()
        names = [*stage.reads, *(name for name in stage.consults if name in parts)]
        return self.tables(*names) if names else Tables(self.store, {})

    def _list_tables(self, tables: Collection[str]) -> list[str]:
        """Files of all tables. Only those of `tables` are listed again each time: no other stage writes now."""
        if self._table_files is None:
            self._table_files = {name: self._list_table(name) for name in self.store.folders("tables")}
        self._table_files |= {name: self._list_table(name) for name in tables}
        return [file for files in self._table_files.values() for file in files]

    def _list_table(self, table: str) -> list[str]:
        return list(self.store.sizes(f"tables/{table}", recursive=True))

    def delete_old_parts(self, manifest: Manifest) -> None:
        """Delete a complete stage's progress records, and its parts of older or unfinished versions."""
        # Records first: after a kill, one of a deleted part would hide the finished unit in the manifest.
        for name in self.store.sizes(f"progress/{manifest.stage}"):
            self.store.delete(name)
        own_part = parts_of(manifest.stage)
        current_files = {part.file for parts in manifest.outputs.values() for part in parts}
        for name in self._list_tables(manifest.outputs):
            if manifest.stage in name and name not in current_files and own_part.fullmatch(name.rpartition("/")[2]):
                self.store.delete(name)


def _manifest_file(stage: str) -> str:
    return f"manifests/{stage}.json"
