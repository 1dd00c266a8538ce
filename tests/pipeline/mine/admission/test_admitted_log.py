"""The days that other stages see: without held and discarded ones, tenant by tenant."""

from datetime import date, timedelta

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.mine.admission.admitted_log import AdmittedRows
from darklode.schemas.tables import TABLES
from helpers.days import given
from helpers.runs import put
from helpers.small_log import FIRST, Search

DAYS = [FIRST + timedelta(number) for number in range(3)]
LOG = {day: [Search(tenant, "s", 1, "one", ("d1",)) for tenant in ("default", "tern")] for day in DAYS}


def state(day: date, tenant: str, state: str) -> dict[str, object]:
    return {"tenant": tenant, "date": day, "state": state, "reasons": [], "rows": 1}


def admitted(run: Run, *states: dict[str, object]) -> AdmittedRows:
    given(run, LOG)
    put(run, "log_days", pa.Table.from_pylist(list(states), TABLES["log_days"].schema))
    return AdmittedRows.from_tables(run.tables("impressions", "log_days"))


def test_without_states_all_days_count(run: Run) -> None:
    given(run, LOG)
    found = AdmittedRows.from_tables(run.tables("impressions"))
    assert list(found.days) == list(map(str, DAYS))
    assert found.digests() == admitted(run).digests()


def test_a_day_that_nobody_may_use_is_not_there(run: Run) -> None:
    found = admitted(run, *(state(DAYS[1], tenant, "held") for tenant in ("default", "tern")))
    assert list(found.digests()) == [str(DAYS[0]), str(DAYS[2])]


def test_one_tenants_rows_are_left_out(run: Run) -> None:
    found = admitted(run, state(DAYS[1], "tern", "discarded"), state(DAYS[1], "default", "accepted"))
    assert found.digests().keys() == {str(day) for day in DAYS}
    assert found.digests() != AdmittedRows.from_tables(run.tables("impressions")).digests()
    with found.tables.connect() as connection:
        for day, tenants in ((DAYS[0], ["default", "tern"]), (DAYS[1], ["default"])):
            rows = found.impressions(connection, str(day))
            assert connection.sql(f"SELECT tenant FROM {rows} ORDER BY tenant").fetchall() == [(t,) for t in tenants]
