"""Deployments of one's own on a Prefect server that stays: a flow, the settings file that says on what, and a time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from prefect import Flow, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments.runner import DeploymentApplyError, RunnerDeployment
from prefect.exceptions import InvalidNameError, ObjectNotFound, PrefectHTTPStatusError
from prefect.types.entrypoint import EntrypointType
from pydantic import ValidationError

from darklode.flows.config import load_settings, read_project
from darklode.flows.prefect import orchestration
from darklode.pipeline.base.errors import MissingPart, SettingsError

ONE_AT_A_TIME = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.ENQUEUE)
"""Two runs at once on one folder cannot both commit: the later one waits."""

FLOWS: Mapping[str, Flow[..., Any]] = {"queries": orchestration.build_benchmark, "logs": orchestration.mine_logs}
"""The flow that each path of a settings file asks for; the last one of them is the one that comes again."""


@dataclass(frozen=True)
class Deployed:
    """A deployment: `name` as `prefect deployment run` takes it; `cron` is empty where it has no time of its own."""

    name: str
    cron: str = ""


def deploy(config: Path, name: str, pool: str, cron: str | None, timezone: str) -> Iterator[Deployed]:
    """Deploy what a settings file holds paths for: the benchmark, the mining of the log, or both.

    Args:
        config: the file, which the worker reads at each run: what changes in it holds from the next run on.
        name: of the deployments, or of those that they replace.
        pool: work pool; made where there is none of the name.
        cron: when the log is mined, or the benchmark built where there is no log; None: when asked.
        timezone: in which `cron` is meant.

    Raises:
        SettingsError: the file cannot be read, or names neither queries nor a log; no such time, name or pool.
        MissingPart: the server refuses the deployment.
    """
    load_settings(read_project(config).preset, config)
    paths = read_project(config).paths
    flows_to_deploy = [asks for asks in FLOWS if asks in paths]
    if not flows_to_deploy:
        raise SettingsError(f"{config} names neither paths.queries nor paths.logs: there is nothing to deploy")
    due = [_schedule(cron, timezone)] if cron else []
    with _quiet_prefect():
        _provide(pool)
        for asks in flows_to_deploy:
            schedules = due if asks == flows_to_deploy[-1] else []
            made = FLOWS[asks].to_deployment(
                name,
                parameters={"config": str(config.resolve())},
                schedules=schedules,
                concurrency_limit=ONE_AT_A_TIME,
                work_pool_name=pool,
                entrypoint_type=EntrypointType.MODULE_PATH,
            )
            cast(RunnerDeployment, made).apply()
            yield Deployed(f"{FLOWS[asks].name}/{name}", f"{cron} {timezone}" if schedules else "")


@contextmanager
def _quiet_prefect() -> Iterator[None]:
    """What Prefect refuses, in a sentence."""
    try:
        yield
    except InvalidNameError as error:
        raise SettingsError(f"--name: {error}") from error
    except ValidationError as error:
        raise SettingsError(f"--pool: {error.errors()[0]['msg']}") from error
    except (DeploymentApplyError, PrefectHTTPStatusError) as error:
        raise MissingPart(f"the Prefect server refuses the deployment: {' '.join(str(error).split())}") from error


def _schedule(cron: str, timezone: str) -> CronSchedule:
    try:
        return CronSchedule(cron=cron, timezone=timezone)
    except ValidationError as error:
        (first_error, *_) = error.errors()
        wrong = "--cron" if "cron" in first_error["loc"] else "--timezone"
        raise SettingsError(
            f'{wrong} {first_error["input"]!r} is none; such as --cron "0 3 * * *" --timezone Europe/Berlin'
        ) from error


def _provide(pool: str) -> None:
    """A pool whose workers run flows as processes of their own, unless one of this name is there."""
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(pool)
        except ObjectNotFound:
            client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
