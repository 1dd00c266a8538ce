"""A key in an address never gets to Prefect's database, nor into a run."""

from pathlib import Path

import pytest
from prefect import get_client
from prefect.exceptions import PrefectHTTPStatusError
from prefect.utilities.schema_tools.validation import validate

from darklode.flows.prefect import orchestration
from helpers.commands import DARKLODE, Environment, build_command, mine_command, one_line, run_inside, server_of

pytestmark = pytest.mark.server

KEY = "AKIATHISISASECRET"
ADDRESS = f"s3://user:{KEY}@bucket/run"


def written(folder: Path) -> list[Path]:
    """The files below a folder that hold the key."""
    return [path for path in folder.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


@pytest.mark.parametrize("command", ["build", "mine", "evaluate", "audit", "validate"])
def test_a_command_refuses_it_before_its_flow(served: Environment, workplace: Path, command: str) -> None:
    commands = {"build": build_command(ADDRESS), "mine": mine_command(ADDRESS)}
    shown = run_inside(commands.get(command, [DARKLODE, command, ADDRESS]), served)
    one_line(shown, "s3:// URLs must not contain keys or options")
    assert KEY not in shown.out + shown.err
    assert written(workplace) == []


def test_a_log_at_such_an_address_is_not_written_into_the_run(served: Environment, tmp_path: Path) -> None:
    shown = run_inside(mine_command(tmp_path / "run", logs=ADDRESS), served)
    one_line(shown, "s3:// URLs must not contain keys or options")
    assert written(tmp_path) == []


@pytest.mark.parametrize("name", ["build_benchmark", "mine_logs", "audit_retrievers", "evaluate_systems"])
def test_the_server_refuses_it_as_a_parameter_of_a_deployment(served: Environment, workplace: Path, name: str) -> None:
    with server_of(served), get_client(sync_client=True) as client:
        flow = getattr(orchestration, name)
        deployment = flow.to_deployment("keys").apply()
        with pytest.raises(PrefectHTTPStatusError):
            client.create_flow_run_from_deployment(deployment, parameters={"out": ADDRESS})
        assert client.create_flow_run_from_deployment(deployment, parameters={"out": "s3://bucket/a:b@c"}).id
    assert written(workplace) == []


@pytest.mark.parametrize(
    "place",
    [
        ADDRESS,
        f"s3://user:{KEY}",
        f"s3://{KEY}@bucket",
        f"S3://{KEY}:x@bucket/a",
        f"postgresql://user:{KEY}@host/db?table=docs",
        f"postgresql+asyncpg://user:{KEY}/x@host/db",
        f"opensearch+https://user:{KEY}@host:9200/docs",
        f"postgresql://user@host/db?table=docs&password={KEY}",
    ],
)
def test_a_key_in_any_form_is_refused(place: str) -> None:
    assert validate({"out": place}, orchestration.audit_retrievers.parameters.model_dump())


@pytest.mark.parametrize(
    "place",
    [
        "docs",
        "/a/b:c",
        "s3://bucket/pre:fix@x",
        "C:/x",
        "",
        "postgresql://user@host:5432/db?table=docs&password_env=SHOP_PASSWORD",
        "opensearch+https://[::1]:9200/docs?api_key_env=SHOP_KEY",
        "sqlite:////data/shop.db?table=docs",
    ],
)
def test_other_places_are_taken(place: str) -> None:
    assert validate({"out": place}, orchestration.audit_retrievers.parameters.model_dump()) == []
