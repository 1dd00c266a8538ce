"""A night: mined, adapted from what is live, released behind the gate; killed anywhere it ends the same."""

import json
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from prefect import get_client
from prefect.client.schemas.filters import FlowFilter, FlowFilterName

from darklode.flows.jobs.nightly_adapt import combine_errors, nightly_adapt
from darklode.flows.runs import read_inputs
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError, DoesNotFit, HeldBack, NoLift, SettingsError
from darklode.pipeline.serve.registry import AdapterRegistry
from darklode.schemas.run_inputs import AdapterInputs
from helpers.adapted import TENANT, word
from helpers.commands import DARKLODE, Environment, one_line, run_inside, server_of
from helpers.runs import read
from helpers.tiny_bert import tiny_bert

pytestmark = pytest.mark.server

GUARD = "birch"
DOCUMENTS, SEARCHES = 120, 20
PLACES = {"encoder": "model", "out": "out", "registry": "adapters"}
FILLERS = [word(1000 + 5 * number) for number in range(12)]


def topic(number: int) -> str:
    return word(7 * number)


def document(number: int, tenant: str) -> dict[str, object]:
    said = random.Random(number).sample(FILLERS, 3)
    text = f"{topic(number)} {' '.join(said)}"
    return {"tenant": tenant, "doc_id": f"d{number}", "title": topic(number), "text": text}


def searched(day: int) -> Iterable[dict[str, object]]:
    """A day's rows: new queries, each of which asks for one document's topic, and finds it."""
    for place in range(SEARCHES):
        number = (day - 1) * SEARCHES + place
        chance = random.Random(number)
        shown = chance.sample([one for one in range(DOCUMENTS) if one != number % DOCUMENTS], 3)
        shown.insert(chance.randrange(1, 4), number % DOCUMENTS)
        tenant = GUARD if day == 1 and place < 2 else TENANT
        for again in range(3):
            about = {"tenant": tenant, "session_id": f"{day}-{place}-{again}", "query": f"how do i {topic(number)}"}
            about["timestamp"] = f"2026-03-{day:02}T{8 + place // 6:02}:{place * 7 % 60:02}:{again * 11:02}Z"
            for position, doc in enumerate(shown, 1):
                found = {"doc_id": f"d{doc}", "position": position, "clicked": doc == number % DOCUMENTS}
                yield about | found


def lines(file: Path, rows: Iterable[dict[str, object]]) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def given(root: Path, days: Iterable[int]) -> None:
    """The log's days, the documents of both tenants, and an encoder."""
    for day in days:
        lines(root / "log" / f"2026-03-{day:02}.jsonl", searched(day))
    both = [document(number, tenant) for tenant in (TENANT, GUARD) for number in range(DOCUMENTS)]
    lines(root / "docs" / "docs.jsonl", both)
    if not (root / "model").exists():
        tiny_bert(root / "model", hidden_size=32, intermediate_size=32)


def settings_file(root: Path) -> Path:
    """As somebody's `nightly.yaml`; the guard's two queries are on the training side."""
    adapt = {"max_steps": 50, "batch_size": 16, "learning_rates": [3e-3], "tenant": TENANT}
    settings = {"cache": {"root": "cache"}, "adapt": adapt, "relevance": {"ranker": "none"}}
    file = root / "nightly.yaml"
    file.write_text(json.dumps(settings | {"paths": {"logs": "log", "docs": "docs", "mined": "mined"}}))
    return file


def night(root: Path, rate: float = 3e-3, **parameters: Any) -> str:
    """One night."""
    places = {name: str(root / folder) for name, folder in PLACES.items()}
    settings = {"adapt": {"learning_rates": [rate]}}
    given = {"test_days": 2, "settings": settings, "config": str(settings_file(root))}
    return nightly_adapt(**places | given | parameters)


def live(root: Path) -> dict[str, list[str]]:
    return AdapterRegistry(str(root / "adapters")).live


def contents(root: Path) -> dict[str, bytes]:
    """All tables, all that is handed over, and what is live."""
    files = [
        path
        for name in ("mined", "out", "adapters")
        for path in (root / name).rglob("*")
        if path.suffix in {".parquet", ".safetensors"} or path.name in {"adapter.json", "registry.json"}
    ]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, served: Environment) -> Path:
    """A first night behind a guard tenant that has nothing to tell by: all is made, nothing live; nobody changes it."""
    root = tmp_path_factory.mktemp("nights")
    given(root, range(1, 7))
    options = [part for name, folder in PLACES.items() for part in (f"--{name}", str(root / folder))]
    options += ["--config", str(settings_file(root)), "--test-days", "2", "--share-with", GUARD]
    ended = run_inside([DARKLODE, "adapt", "nightly", *options], served)
    one_line(ended, f"tenant {GUARD} has no labelled test queries", 3)
    assert states(served) == ["Held"]
    return root


def states(environment: Environment) -> list[str | None]:
    """How the server has the nights of this folder."""
    with server_of(environment), get_client(sync_client=True) as client:
        named = FlowFilter(name=FlowFilterName(any_=["nightly-adapt"]))
        return [one.state_name for one in client.read_flow_runs(flow_filter=named)]


@pytest.fixture
def root(first: Path, tmp_path: Path) -> Path:
    """That night as one's own."""
    return Path(shutil.copytree(first, tmp_path / "nights"))


@pytest.mark.slow
def test_what_the_gate_refuses_is_not_live(first: Path) -> None:
    with pytest.raises(NoLift, match=f"tenant {GUARD} has no labelled test queries"):
        night(first, share_with=[GUARD])
    assert live(first) == {}
    assert read(Run(str(first / "out")), "adapter_verdict")[0]["shipped"] == "adapted"
    assert max(row["date"] for row in read(Run(str(first / "mined")), "log_days")).isoformat() == "2026-03-06"
    sides = {(row["date"].isoformat() < "2026-03-05", row["split"] == "test") for row in clusters(first)}
    assert sides == {(True, False), (False, True)}, "the last two days are the test"


def clusters(root: Path) -> list[dict[str, Any]]:
    return [row for row in read(Run(str(root / "mined")), "query_clusters") if row["split"]]


@pytest.mark.slow
def test_nights_begin_with_what_is_live_and_change_nothing_twice(root: Path) -> None:
    assert f" for {TENANT}" in night(root)
    (name,) = live(root)[TENANT]
    before = contents(root)
    night(root)
    assert contents(root) == before

    given(root, [7])
    night(root, 1e-9)
    registry = AdapterRegistry(str(root / "adapters"))
    inputs = read_inputs(Run(str(root / "out")))
    assert isinstance(inputs, AdapterInputs)
    assert inputs.warm_start == registry.folder(name)
    assert live(root)[TENANT][:1] == [name]
    assert len(live(root)[TENANT]) == 2
    registry.rollback(TENANT)
    night(root, 1e-9)
    assert live(root)[TENANT] == [name], "what somebody rolled back stays away"


@pytest.mark.slow
def test_killed_anywhere_it_ends_the_same(root: Path, first: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(root / "out")
    real = Run.execute

    def stops_at(stage: str) -> Callable[..., Any]:
        def execute(run: Run, plan: Any, *rest: Any) -> Any:
            if plan.stage.name == stage:
                raise KeyboardInterrupt
            return real(run, plan, *rest)

        return execute

    def stops(*_: object) -> None:
        raise KeyboardInterrupt

    for where, name, instead in (
        (Run, "execute", stops_at("adaptation_trials")), (Run, "execute", stops_at("adapter_verdict")),
        (AdapterRegistry, "_write", stops),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(where, name, instead)
            with pytest.raises(KeyboardInterrupt):
                night(root)
        assert live(root) == {}
    night(root)
    assert len(live(root)[TENANT]) == 1
    made = {name: data for name, data in contents(root).items() if name.startswith("out/") and "json" not in name}
    assert made == {name: data for name, data in contents(first).items() if name in made}


@pytest.mark.slow
def test_each_tenant_has_a_head_of_its_own(root: Path) -> None:
    night(root, out=str(root / "heads"), tenants=["all"])
    heads = {row["tenant"]: row for row in read(Run(str(root / "heads")), "adapted_tenants")}
    assert {name: row["shipped"] for name, row in heads.items()} == {TENANT: "adapted", GUARD: None}
    assert live(root) == {TENANT: [heads[TENANT]["adapter"]]}


def test_days_that_wait_and_what_the_gate_refused_are_told_together() -> None:
    error = combine_errors([HeldBack("2026-03-11 is held", days=["2026-03-11"]), NoLift("acme would fall")])
    assert isinstance(error, HeldBack)
    assert (error.days, error.each) == (["2026-03-11"], ["2026-03-11 is held", "acme would fall"])
    assert isinstance(combine_errors([NoLift("acme would fall"), DoesNotFit("birch")]), NoLift)


@pytest.mark.slow
def test_what_cannot_be_asked_for(root: Path) -> None:
    with pytest.raises(SettingsError, match="exclude each other"):
        night(root, tenants=["all"], share_with=[GUARD])
    shutil.rmtree(root / "adapters", ignore_errors=True)
    (root / "adapters").mkdir()
    (root / "adapters" / "notes.txt").write_text("mine")
    with pytest.raises(ArtifactError, match="contains no finished adapter"):
        night(root)
