import pickle

import pytest
from pydantic import Field

from darklode.schemas.judging import JudgeSettings
from darklode.schemas.section import Bound, NoRow, Section
from darklode.schemas.settings import IngestSettings, Settings


class Inner(Section):
    size: int = 1
    speed: NoRow[int] = 2


class Outer(Section):
    inner: Inner = Inner()
    each: tuple[Inner, ...] = (Inner(), Inner(size=4))
    named: dict[str, Inner] = Field({"one": Inner()})
    most: Bound[float] = 0.5
    place: NoRow[str | None] = None


ROWS = {"inner": {"size": 1}, "each": [{"size": 1}, {"size": 4}], "named": {"one": {"size": 1}}}


def test_what_changes_no_row_is_left_out_wherever_it_stands() -> None:
    assert Outer().decisive() == {**ROWS, "most": 0.5}
    assert Outer().shaping() == ROWS


def test_a_narrow_section_has_nothing_else() -> None:
    narrow = IngestSettings().but("queries", "tenant", "require_tenant")
    assert narrow.max_row_bytes == IngestSettings().max_row_bytes
    assert set(narrow.decisive()) == {"documents", "max_row_bytes", "max_reject_share"}
    assert IngestSettings().only("tenant").but("tenant").decisive() == {}
    with pytest.raises(AttributeError, match="tenant"):
        _ = narrow.tenant
    with pytest.raises(AttributeError, match="queries"):
        _ = pickle.loads(pickle.dumps(narrow)).queries
    with pytest.raises(ValueError, match="IngestSettings has no tenants"):
        IngestSettings().only("tenants")


def test_the_whole_section_stays_as_it_was() -> None:
    whole = IngestSettings()
    assert whole.only("tenant") == whole.only("tenant")
    assert whole.decisive() == IngestSettings().decisive()


def test_a_panel_may_move_to_other_servers() -> None:
    def panel(url: str, model: str = "m") -> JudgeSettings:
        return Settings.model_validate({"judge": {"panel": [{"kind": "llm", "model": model, "base_url": url}]}}).judge

    assert panel("http://one/v1").decisive() == panel("http://two/v1").decisive()
    assert panel("http://one/v1").decisive() != panel("http://one/v1", "other").decisive()
