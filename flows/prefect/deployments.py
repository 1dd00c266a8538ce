"""Deployments on a Prefect server: a flow, its settings file, and a schedule."""

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
"""Two runs on one folder exclude each other: the later one waits."""

FLOWS: Mapping[str, Flow[..., Any]] = {"queries": orchestration.build_benchmark, "logs": orchestration.mine_logs}
"""The flow for each path of a settings file; the last flow that the file has a path for is scheduled."""


@dataclass(frozen=True)
class Deployment:
    """A deployment: `name` as for `prefect deployment run`; `cron` is empty without a schedule."""

    name: str
    cron: str = ""


def deploy(config: Path, name: str, pool: str, cron: str | None, timezone: str) -> Iterator[Deployment]:
    """Deploy the flows that a settings file has paths for: the benchmark, the mining of the log, or both.

    Args:
        config: the file; the worker reads it at each run, so changes take effect with the next run.
        name: name of the deployments; existing ones are replaced.
        pool: work pool; created if it does not exist.
        cron: schedule of the mining, or of the benchmark if there is no log; None: no schedule.
        timezone: time zone of `cron`.

    Raises:
        SettingsError: the file cannot be read, or has neither queries nor a log; an invalid schedule, name or pool.
        MissingPart: the server rejects the deployment.
    """
    project = read_project(config)
    load_settings(project.preset, config)
    names = [path for path in FLOWS if path in project.paths]
    if not names:
        raise SettingsError(f"{config} has neither paths.queries nor paths.logs, so there is nothing to deploy")
    all_schedules = [_schedule(cron, timezone)] if cron else []
    with _convert_errors():
        _create_pool(pool)
        for path in names:
            schedules = all_schedules if path == names[-1] else []
            runner_deployment = FLOWS[path].to_deployment(
                name,
                parameters={"config": str(config.resolve())},
                schedules=schedules,
                concurrency_limit=ONE_AT_A_TIME,
                work_pool_name=pool,
                entrypoint_type=EntrypointType.MODULE_PATH,
            )
            cast(RunnerDeployment, runner_deployment).apply()
            yield Deployment(f"{FLOWS[path].name}/{name}", f"{cron} {timezone}" if schedules else "")


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert Prefect's errors to ours."""
    try:
        yield
    except InvalidNameError as error:
        raise SettingsError(f"--name: {error}") from error
    except ValidationError as error:
        raise SettingsError(f"--pool: {error.errors()[0]['msg']}") from error
    except (DeploymentApplyError, PrefectHTTPStatusError) as error:
        raise MissingPart(f"the Prefect server rejected the deployment: {' '.join(str(error).split())}") from error


def _schedule(cron: str, timezone: str) -> CronSchedule:
    try:
        return CronSchedule(cron=cron, timezone=timezone)
    except ValidationError as error:
        (first_error, *_) = error.errors()
        wrong = "--cron" if "cron" in first_error["loc"] else "--timezone"
        raise SettingsError(
            f'{wrong} {first_error["input"]!r} is invalid; example: --cron "0 3 * * *" --timezone Europe/Berlin'
        ) from error


def _create_pool(pool: str) -> None:
    """Create a work pool of type process, unless one with this name exists."""
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(pool)
        except ObjectNotFound:
            client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
