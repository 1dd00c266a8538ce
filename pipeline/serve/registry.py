"""Which adapter is live for each tenant, which was before, and why: a folder that keeps what was released.

ROOT/registry.json        what is known of each adapter, who has which, and the history
ROOT/kept/ID/             the adapter as it was released: its record and `query_encoder/`
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from darklode.pipeline.base.artifacts import Run, Store
from darklode.pipeline.base.artifacts.checksummed_json import dump_checksummed, load_checksummed
from darklode.pipeline.base.errors import ArtifactError, DarklodeError, DoesNotFit, NoLift
from darklode.pipeline.serve.adapter_check import AdapterCheck, require_fit
from darklode.pipeline.serve.release_gate import LiveAdapters, require_no_loss
from darklode.pipeline.train.release.adapter import HEAD, RECORD, Adapter, read_record
from darklode.pipeline.train.release.identity import weights_hash

NAME = "registry.json"
KEPT = "kept"
INPUTS = "inputs.json"
"""What is noted of an adapter's making, by which its encoder has a name."""

Row = dict[str, Any]


def is_registry(store: Store) -> bool:
    """Whether a place is a registry's: it is, or may become one, or would be had its first release not been killed."""
    names = store.root_names()
    return not names or not {NAME, KEPT}.isdisjoint(names)


class AdapterRegistry:
    """Adapters that were released, below a root.

    Args:
        url: a folder or `s3://` prefix; made at the first release.

    Raises:
        ArtifactError: what lies there is damaged.
    """

    def __init__(self, url: str) -> None:
        self._run = Run(url)
        self._store = self._run.store
        try:
            recorded = load_checksummed(self._store.read(NAME) or b"{}")
        except ValueError as error:
            raise ArtifactError(f"{self._store.path(NAME)} is damaged ({error}); restore it from a copy") from error
        self.adapters: dict[str, Row] = recorded.get("adapters", {})
        self.live: dict[str, list[str]] = recorded.get("live", {})
        self.history: list[Row] = recorded.get("history", [])

    def rows(self) -> list[Row]:
        """What is known of each adapter, by tenant, the live one first, then the ones before it, latest first."""
        registry_rows: list[Row] = []
        of_tenant: dict[str, set[str]] = {tenant: set(order) for tenant, order in self.live.items()}
        for name, row in self.adapters.items():
            of_tenant.setdefault(row["tenant"], set()).add(name)
        for tenant, tenant_rows in sorted(of_tenant.items()):
            order = self.live.get(tenant, [])[::-1]
            for name in [*dict.fromkeys(order), *sorted(tenant_rows - set(order))]:
                state = "released" if order[:1] == [name] else "before" if name in order else "retired"
                registry_rows.append({**self.adapters[name], "tenant": tenant, "adapter": name, "state": state})
        return registry_rows

    def folder(self, name: str) -> str:
        """Where a released adapter is kept."""
        return f"{self._store.url}/{KEPT}/{name}"

    def on_air(self, tenant: str) -> Adapter | None:
        """A tenant's live adapter; None: the base."""
        order = self.live.get(tenant, [])
        return Adapter.open(self.folder(order[-1])) if order else None

    def release(self, check: AdapterCheck, force: str | None, rivals: Sequence[LiveAdapters] = ()) -> str:
        """Make an adapter the live one of its tenant, and of those whom it is shared with; returns its id.

        Args:
            check: of the adapter against its tenant's index.
            force: why it is released although it should not be; written down.
            rivals: what is live for its tenant, and for each whom it is shared with, which must not fall.

        Raises:
            DoesNotFit: the check refuses it, and nobody says why it is to be released all the same.
            NoLift: likewise, of an adapter that hands the base over, or by which a tenant falls.
        """
        refused = list(_refusals(check, rivals))
        if refused and not force:
            raise refused[0]
        adapter, name = check.adapter, check.adapter.id
        with self._changing():
            tenants = list(dict.fromkeys([adapter.tenant, *(rival.index.tenant for rival in rivals)]))
            self._copy_adapter(adapter, name, tenants[1:])
            self.adapters[name] = _row(check)
            for tenant in tenants:
                order = self.live.setdefault(tenant, [])
                before = order[-1] if order else None
                if before != name:
                    order.append(name)
                self._note("release", tenant, before, name, _reason(force, refused) if refused else None)
            self._write()
        return name

    def rollback(self, tenant: str) -> str | None:
        """Make the adapter before live again; None: the base, where there was none.

        Raises:
            ArtifactError: the tenant has none, or what was kept of the one before is damaged.
        """
        with self._changing():
            order = self.live.get(tenant, [])
            if not order:
                raise ArtifactError(f"{self._store.url} has no released adapter of the tenant {tenant}")
            now = order[-2] if len(order) > 1 else None
            if now and _is_damaged(self.folder(now), self.adapters[now]["weights"]):
                raise ArtifactError(f"{self.folder(now)} is damaged; release that adapter again from its own folder")
            before = order.pop()
            self._note("rollback", tenant, before, now, None)
            self._write()
        return now

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """One process at a time, on what the last one wrote."""
        with self._run.lock():
            fresh = AdapterRegistry(self._store.url)
            self.adapters, self.live, self.history = fresh.adapters, fresh.live, fresh.history
            yield

    def _note(self, action: str, tenant: str, before: str | None, now: str | None, forced: str | None) -> None:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        entry = {"at": at, "action": action, "tenant": tenant, "before": before, "now": now, "forced": forced}
        self.history.append(entry)

    def _write(self) -> None:
        self._store.write(
            NAME, dump_checksummed({"adapters": self.adapters, "live": self.live, "history": self.history})
        )

    def _copy_adapter(self, adapter: Adapter, name: str, other_tenants: Sequence[str]) -> None:
        """Have a copy that another night's adapter does not overwrite; the record comes last, with whom it serves."""
        for file in [*sorted(adapter.store.sizes(adapter.files, recursive=True)), HEAD, INPUTS]:
            data = None if self._try_hard_link(adapter.store, file, name) else adapter.store.read(file)
            if data is not None:
                self._store.write(f"{KEPT}/{name}/{file}", data)
        facts = adapter.facts | ({"shared_with": list(other_tenants)} if other_tenants else {})
        self._store.write(f"{KEPT}/{name}/{RECORD}", json.dumps(facts, indent=1, ensure_ascii=False).encode())

    def _try_hard_link(self, source_store: Store, file: str, name: str) -> bool:
        """Whether the file could be linked, which takes no room: an adapter's files are replaced, never written to."""
        if source_store.local is None or self._store.local is None:
            return False
        target = Path(self._store.local, KEPT, name, file)
        with suppress(OSError):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            os.link(source_store.local / file, target)
            return True
        return False


def _reason(force: str | None, refused: list[DarklodeError]) -> str:
    """What is written down of a release that was refused."""
    return f"{force} ({'; '.join(map(str, refused))})"


def _is_damaged(url: str, weights: str) -> bool:
    store = Store(url)
    return weights_hash(store, Adapter(store, read_record(store)).files) != weights


def _refusals(check: AdapterCheck, rivals: Sequence[LiveAdapters]) -> Iterator[DarklodeError]:
    """Why an adapter is not to be released."""
    if not check.adapter.ships:
        yield NoLift(f"{check.adapter.store.url} hands the base over: {check.adapter.facts['reason']}")
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
