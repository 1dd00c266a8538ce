"""Registry of released adapters: which one is live for each tenant, and the history.

ROOT/registry.json        facts of each adapter, live adapters by tenant, and the history
ROOT/kept/ID/             a copy of the released adapter: its record and `query_encoder/`
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from darklode.pipeline.base.artifacts import Run, Store
from darklode.pipeline.base.artifacts.checksummed_json import dump_checksummed, load_checksummed
from darklode.pipeline.base.errors import ArtifactError, DarklodeError, DoesNotFit, NoLift
from darklode.pipeline.base.types import Row
from darklode.pipeline.serve.adapter_check import AdapterCheck, require_fit
from darklode.pipeline.serve.release_gate import LiveAdapters, require_no_loss
from darklode.pipeline.train.release.adapter import HEAD_FILE, RECORD_FILE, Adapter, read_record, weights_hash
from darklode.pipeline.train.release.term_modules import TERMS_PATH

REGISTRY_FILE = "registry.json"
ADAPTERS_FOLDER = "kept"
"""Folder of the copies of released adapters, one folder per adapter id."""
INPUTS_FILE = "inputs.json"
"""The recorded inputs of an adapter, which name its encoder."""


def is_registry(store: Store) -> bool:
    """Whether a folder is a registry, is empty, or has an interrupted first release."""
    names = store.root_names()
    return not names or not {REGISTRY_FILE, ADAPTERS_FOLDER}.isdisjoint(names)


class AdapterRegistry:
    """Released adapters in a folder.

    Args:
        url: folder or `s3://` prefix; created by the first release.

    Raises:
        ArtifactError: the registry is damaged.
    """

    def __init__(self, url: str) -> None:
        self._run = Run(url)
        self._store = self._run.store
        try:
            recorded = load_checksummed(self._store.read(REGISTRY_FILE) or b"{}")
        except ValueError as error:
            raise ArtifactError(
                f"{self._store.path(REGISTRY_FILE)} is damaged ({error}); restore it from a copy"
            ) from error
        self.adapters: dict[str, Row] = recorded.get("adapters", {})
        self.live: dict[str, list[str]] = recorded.get("live", {})
        self.history: list[Row] = recorded.get("history", [])

    def rows(self) -> list[Row]:
        """Facts of each adapter by tenant: the live one first, then earlier ones, latest first."""
        registry_rows: list[Row] = []
        names_by_tenant: dict[str, set[str]] = {tenant: set(order) for tenant, order in self.live.items()}
        for name, row in self.adapters.items():
            names_by_tenant.setdefault(row["tenant"], set()).add(name)
        for tenant, names in sorted(names_by_tenant.items()):
            order = self.live.get(tenant, [])[::-1]
            for name in [*dict.fromkeys(order), *sorted(names - set(order))]:
                state = "released" if order[:1] == [name] else "before" if name in order else "retired"
                registry_rows.append({**self.adapters[name], "tenant": tenant, "adapter": name, "state": state})
        return registry_rows

    def folder(self, name: str) -> str:
        """URL of a released adapter's copy."""
        return f"{self._store.url}/{ADAPTERS_FOLDER}/{name}"

    def live_adapter(self, tenant: str) -> Adapter | None:
        """A tenant's live adapter; None: the base encoder is live."""
        order = self.live.get(tenant, [])
        return Adapter.open(self.folder(order[-1])) if order else None

    def release(self, check: AdapterCheck, force: str | None, rivals: Sequence[LiveAdapters] = ()) -> str:
        """Make an adapter live for its tenant and for tenants that share it; returns its id.

        Args:
            check: check of the adapter against its tenant's index.
            force: reason for releasing it despite a failed check; recorded in the history.
            rivals: live systems of its tenant and of tenants that share it, which must not become worse.

        Raises:
            DoesNotFit: a check failed, and `force` is not given.
            NoLift: it is only the base encoder, or a tenant becomes worse, and `force` is not given.
        """
        failures = list(_failed_checks(check, rivals))
        if failures and not force:
            raise failures[0]
        adapter, name = check.adapter, check.adapter.id
        with self._transaction():
            tenants = list(dict.fromkeys([adapter.tenant, *(rival.index.tenant for rival in rivals)]))
            self._copy_adapter(adapter, name, tenants[1:])
            self.adapters[name] = _row(check)
            for tenant in tenants:
                order = self.live.setdefault(tenant, [])
                before = order[-1] if order else None
                if before != name:
                    order.append(name)
                self._record_change(
                    "release", tenant, before, name, _forced_reason(force, failures) if failures else None
                )
            self._write()
        return name

    def rollback(self, tenant: str) -> str | None:
        """Roll back to the previous adapter; returns its id, or None for the base encoder.

        Raises:
            ArtifactError: the tenant has no adapter, or the copy of the previous one is damaged.
        """
        with self._transaction():
            order = self.live.get(tenant, [])
            if not order:
                raise ArtifactError(f"{self._store.url} has no released adapter of tenant {tenant}")
            now = order[-2] if len(order) > 1 else None
            if now and _is_damaged(self.folder(now), self.adapters[now]["weights"]):
                raise ArtifactError(f"{self.folder(now)} is damaged; release that adapter again from its own folder")
            before = order.pop()
            self._record_change("rollback", tenant, before, now, None)
            self._write()
        return now

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Lock the registry and reload it before a change, because another process may have changed it since."""
        with self._run.lock():
            fresh = AdapterRegistry(self._store.url)
            self.adapters, self.live, self.history = fresh.adapters, fresh.live, fresh.history
            yield

    def _record_change(self, action: str, tenant: str, before: str | None, now: str | None, forced: str | None) -> None:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        entry = {"at": at, "action": action, "tenant": tenant, "before": before, "now": now, "forced": forced}
        self.history.append(entry)

    def _write(self) -> None:
        self._store.write(
            REGISTRY_FILE, dump_checksummed({"adapters": self.adapters, "live": self.live, "history": self.history})
        )

    def _copy_adapter(self, adapter: Adapter, name: str, other_tenants: Sequence[str]) -> None:
        """Copy an adapter, so that later ones do not overwrite it; the record is written last, with sharing tenants."""
        vector_files = sorted(adapter.store.sizes(adapter.files, recursive=True))
        for file in [*vector_files, HEAD_FILE, TERMS_PATH, INPUTS_FILE]:
            data = None if self._try_hard_link(adapter.store, file, name) else adapter.store.read(file)
            if data is not None:
                self._store.write(f"{ADAPTERS_FOLDER}/{name}/{file}", data)
        facts = adapter.facts | ({"shared_with": list(other_tenants)} if other_tenants else {})
        self._store.write(
            f"{ADAPTERS_FOLDER}/{name}/{RECORD_FILE}", json.dumps(facts, indent=1, ensure_ascii=False).encode()
        )

    def _try_hard_link(self, source_store: Store, file: str, name: str) -> bool:
        """Hard-link a file if possible. Links are safe, because adapter files are replaced, never modified."""
        if source_store.local is None or self._store.local is None:
            return False
        target = Path(self._store.local, ADAPTERS_FOLDER, name, file)
        with suppress(OSError):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            os.link(source_store.local / file, target)
            return True
        return False


def _forced_reason(force: str | None, failures: list[DarklodeError]) -> str:
    """The history entry of a forced release."""
    return f"{force} ({'; '.join(map(str, failures))})"


def _is_damaged(url: str, weights: str) -> bool:
    store = Store(url)
    return weights_hash(store, Adapter(store, read_record(store)).files) != weights


def _failed_checks(check: AdapterCheck, rivals: Sequence[LiveAdapters]) -> Iterator[DarklodeError]:
    """Yield reasons against the release of an adapter."""
    if not check.adapter.ships:
        yield NoLift(f"{check.adapter.store.url} contains only the base encoder: {check.adapter.facts['reason']}")
    try:
        require_fit(check.adapter, check.index, list(check.findings()))
        for rival in rivals:
            require_no_loss(rival)
    except (DoesNotFit, NoLift) as error:
        yield error


def _row(check: AdapterCheck) -> Row:
    facts = check.adapter.facts
    base = facts["base"]
    return {
        "tenant": facts["tenant"],
        "base": f"{base['encoder']}@{base['weights']}",
        "prompt": base["query prompt"],
        "weights": facts["weights"],
        "index": check.index.source.run.store.url,
        "texts": check.index.texts.digest,
        "data": facts["data"],
        **{name: facts["scores"][name] for name in ("difference", "low", "high", "queries")},
    }
