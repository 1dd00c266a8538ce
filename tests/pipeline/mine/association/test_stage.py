"""The stage: a night writes what is new, a late query redoes what it touches, and the bytes are those of one run."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from darklode.pipeline.base.artifacts import Manifest, Run, Stage
from darklode.pipeline.mine.association import stage as associating
from darklode.pipeline.mine.association.stage import ASSOCIATE, associate
from darklode.schemas.mining import AssociateSettings
from helpers.elsewhere import Elsewhere
from helpers.logs_of_terms import FIRST, Log, found, random_log, tables_of
from helpers.runs import execute

DAYS = [FIRST + timedelta(days=day) for day in range(4)]


def give(run: Run, log: Log) -> None:
    """The two tables, the queries in a part for each date."""
    queries, terms = tables_of(log)

    def work(_tables: Any, output: Any) -> None:
        for day in DAYS:
            rows: pa.Table = queries.filter(pc.equal(queries["date"], pa.scalar(day)))
            output.write("log_queries", rows)
        output.write("query_terms", terms)

    stage = Stage("given", 1, (), ("log_queries", "query_terms"))
    run.execute(run.plan(stage, {"nights": len(log)}), work)


def associated(run: Run, log: Log, **settings: Any) -> Manifest:
    give(run, log)
    return execute(
        run, ASSOCIATE, lambda tables, output: associate(tables, output, AssociateSettings(rule="paper", **settings))
    )


def test_borrowers_elsewhere_make_the_same_parts(
    run: Run, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(associating, "SHARD_QUERIES", 4)
    monkeypatch.setattr("darklode.pipeline.mine.days.PIECE_ROWS", 50)
    here = associated(Run(str(tmp_path / "here")), log, max_lenders=2)
    elsewhere = Elsewhere(run.store, 3)
    give(run, log)
    chosen = AssociateSettings(rule="paper", max_lenders=2)
    there = execute(run, ASSOCIATE, lambda tables, output: associate(tables, output, chosen, elsewhere))
    assert there.outputs == here.outputs
    assert there.funnel == here.funnel
    assert there.funnel[1].dropped
    assert elsewhere.names == [f"associate {number} of 3" for number in (1, 2, 3)]
    assert not run.store.sizes("progress/associate")


def up_to(log: Log, day: int) -> Log:
    return {key: query for key, query in log.items() if query[0] <= day}


def files(manifest: Manifest) -> list[str]:
    return [part.sha256 for part in manifest.outputs["associations"]]


@pytest.fixture
def log() -> Log:
    return random_log(seed=5, tenants=60)


def test_it_writes_what_is_found_in_parts_of_a_date(run: Run, log: Log) -> None:
    manifest = associated(run, log)
    tables = run.tables("associations")
    assert tables.read("associations").to_pylist() == found(log)
    days = [set(tables.part(part)["date"].to_pylist()) for part in tables.parts("associations")]
    assert days == [{day} for day in DAYS]
    assert len(found(log)) == manifest.funnel[1].rows_out > 100


def test_nights_give_the_bytes_of_one_run(run: Run, tmp_path: Path, log: Log) -> None:
    whole = associated(Run(str(tmp_path / "whole")), log, max_lenders=2)
    for day in range(4):
        night = associated(run, up_to(log, day), max_lenders=2)
    assert files(night) == files(whole)
    assert night.funnel == whole.funnel
    assert night.funnel[1].dropped["more than associate.max_lenders per key"] > 0


def test_a_night_computes_its_own_date_alone(run: Run, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    since = []
    real = associating.Associations

    def noticed(connection: Any, given: AssociateSettings, day: date, share: tuple[int, int]) -> Any:
        since.append(day)
        return real(connection, given, day, share)

    monkeypatch.setattr(associating, "Associations", noticed)
    for day in range(4):
        associated(run, up_to(log, day))
    assert since == DAYS
    associated(run, log)
    assert since == DAYS


def test_a_late_query_redoes_its_date_and_later_ones(run: Run, tmp_path: Path, log: Log) -> None:
    late = log | {("t000", "late"): (2, {"a": 1.0, "b": 0.9}), ("t000", "later"): (2, {"a": 0.9, "b": 1.0})}
    before, after = associated(run, log), associated(run, late)
    keys = [set(manifest.units) for manifest in (before, after)]
    assert len(keys[0] & keys[1]) == 2
    assert files(after) == files(associated(Run(str(tmp_path / "whole")), late))


def test_a_changed_importance_redoes_its_date_and_later_ones(run: Run, log: Log) -> None:
    key = next(key for key, (day, scores) in log.items() if day == 3 and scores)
    changed = log | {key: (3, dict.fromkeys(log[key][1], 0.123))}
    keys = [set(associated(run, each).units) for each in (log, changed)]
    assert len(keys[0] & keys[1]) == 3


def test_a_log_without_queries_has_no_associations(run: Run) -> None:
    assert associated(run, {}).rows("associations") == 0
