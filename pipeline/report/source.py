"""What a report is made from."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pipeline.artifacts import Manifest, Run, Tables
from pipeline.markdown import name_of
from pipeline.views import all_tables
from schemas.settings import Settings


@dataclass(frozen=True)
class Source:
    """A run as it stands.

    Attributes:
        name: the dataset's.
        tables: every table, empty where no complete stage has written it.
        written: the tables that complete stages wrote.
        settings: in force.
        manifests: of the complete stages, by stage.
        mined: whether it is made from a search log.
        units: units on disk of stages that are not complete, by stage.
    """

    name: str
    tables: Tables
    written: frozenset[str]
    settings: Settings
    manifests: dict[str, Manifest]
    mined: bool
    units: dict[str, int]


@contextmanager
def source(run: Run, settings: Settings) -> Iterator[Source]:
    """Open a run for a report.

    Args:
        run: a run; it need not be complete.
        settings: the run's settings.
    """
    manifests = run.manifests()
    written = frozenset(table for manifest in manifests.values() for table in manifest.outputs)
    mined = "impressions" in written or "logs" in json.loads(run.store.read("inputs.json") or b"{}")
    units = {name: len(run.store.sizes(f"progress/{name}")) for name in run.store.folders("progress")}
    with all_tables(run).opened() as tables:
        yield Source(
            name_of(run, settings),
            tables,
            written,
            settings,
            manifests,
            mined,
            {name: count for name, count in units.items() if count and name not in manifests},
        )
