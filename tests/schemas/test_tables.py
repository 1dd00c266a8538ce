"""Every table of a run, whichever module declares it."""

from importlib import import_module
from pkgutil import iter_modules

import pytest

from darklode import schemas
from darklode.schemas.table import Table
from darklode.schemas.tables import TABLES

MODULES = [import_module(f"{schemas.__name__}.{one.name}") for one in iter_modules(schemas.__path__)]


@pytest.mark.parametrize("name", TABLES)
def test_every_table_says_what_it_holds(name: str) -> None:
    table = TABLES[name]
    assert table.about
    assert table.name == name
    assert [field.name for field in table.schema if not (field.metadata or {}).get(b"description")] == []
    assert set(table.key) <= set(table.schema.names)
    assert len(set(table.schema.names)) == len(table.schema.names)


def test_every_table_that_is_declared_is_known() -> None:
    declared = {
        one.name
        for module in MODULES
        for value in vars(module).values()
        if isinstance(value, Table)
        for one in value.with_patch()
    }
    assert declared == set(TABLES)


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if "tenant" in table.schema.names])
def test_the_tenant_is_of_every_key_that_may_name_rows_of_several(name: str) -> None:
    table = TABLES[name]
    assert table.key == () or "tenant" in table.key
