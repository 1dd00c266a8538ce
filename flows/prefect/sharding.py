"""Running shards of a stage: in the flow's process, or on a Ray cluster through Prefect's Ray task runner."""

from __future__ import annotations

import contextvars
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from darklode.flows.executor import PrefectIsNeeded, executor
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.base.sharding import Pieces, Shard, Spread, here, load_shard_result, save_shard_result
from darklode.schemas.settings import RunnerSettings

if TYPE_CHECKING:
    from prefect.task_runners import TaskRunner

T = TypeVar("T", bound=Shard)

ANSWER_SECONDS = 10.0


@contextmanager
def spread_over(settings: RunnerSettings, run: Run) -> Iterator[Spread]:
    """A function that runs shards of the calling flow, for the length of the block.

    The cluster is connected with the first shard, since a flow that is up to date needs none.

    Raises:
        MissingPart: the Ray packages are not installed, or the cluster does not answer.
    """
    if settings.kind == "local":
        yield here
        return
    check_runner(settings)
    with ExitStack() as block:
        yield OnRay(lambda: block.enter_context(_connect_runner(settings)), settings, run.store.url)


class OnRay:
    """Runs shards as tasks of the current flow on Ray; results are written below the run's root.

    If a machine is lost, Ray runs its tasks on another one. A written result survives the machine that wrote it, the
    cluster and this process.
    """

    def __init__(self, enter: Callable[[], TaskRunner[Any]], settings: RunnerSettings, root: str) -> None:
        self._enter, self._root = enter, root
        self._resources = {"num_cpus": settings.num_cpus, "num_gpus": settings.num_gpus}
        # Prefect pickles the context: the flow's is plain data, the stage's contains its open output.
        self._flow = contextvars.copy_context()

    @cached_property
    def _runner(self) -> TaskRunner[Any]:
        return self._enter()

    @property
    def places(self) -> int:
        _ = self._runner  # resources are known only once connected
        resources = import_module("ray").cluster_resources()
        cpus, gpus = self._resources["num_cpus"], self._resources["num_gpus"]
        n_by_cpu = int(resources.get("CPU", 0) / cpus)
        return min(n_by_cpu, int(resources.get("GPU", 0) / gpus)) if gpus else n_by_cpu

    def __call__(self, work: Callable[[T], Pieces], shards: Sequence[T]) -> Iterator[Pieces]:
        """Run the shards; results come in their order.

        Raises:
            MissingPart: Ray failed to run a shard.
        """
        futures = [self._flow.copy().run(self._submit, work, shard) for shard in shards]
        for shard, future in zip(shards, futures, strict=True):
            yield load_shard_result(Run(self._root).store, shard.folder, _count(shard, future))

    def _submit(self, work: Callable[[T], Pieces], shard: T) -> Any:
        from prefect import task
        from prefect.cache_policies import NO_CACHE

        shard_task = task(name="shard", task_run_name=shard.name, cache_policy=NO_CACHE, persist_result=False)
        with import_module("prefect_ray.context").remote_options(**self._resources):
            return self._runner.submit(shard_task(run_shard), {"work": work, "shard": shard, "root": self._root})


def run_shard(work: Callable[[T], Pieces], shard: T, root: str) -> int:
    """Run a shard on a worker, and write its result below the root; returns the number of pieces."""
    return save_shard_result(Run(root).store, shard.folder, work(shard))


def _count(shard: Shard, future: Any) -> int:
    try:
        return int(future.result())
    except import_module("ray").exceptions.RayError as error:
        raise MissingPart(
            f"Ray could not finish {shard.name} ({error.__class__.__name__}); check the cluster's machines and their "
            "memory, then run the same command again to resume"
        ) from error


def check_runner(settings: RunnerSettings) -> list[str]:
    """Check for packages and cluster without importing Ray.

    Raises:
        MissingPart: a package is not installed, or the cluster does not answer.
    """
    if settings.kind == "ray":
        if not all(map(find_spec, ("ray", "prefect_ray"))):
            raise MissingPart('runner.kind ray needs packages that are not installed: pip install "darklode[ray]"')
        if settings.address:
            _check_address(settings.address)
    return []


@contextmanager
def _connect_runner(settings: RunnerSettings) -> Iterator[TaskRunner[Any]]:
    if not executor().shows_progress:
        raise PrefectIsNeeded
    ray, prefect_ray = import_module("ray"), import_module("prefect_ray")
    try:
        runner = _enter_runner(settings, ray, prefect_ray)
    except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
        raise MissingPart(f"cannot connect to {_cluster(settings)}: {error}; see docs/guides/cluster.md") from error
    try:
        yield runner
    finally:
        runner.__exit__(None, None, None)
        ray.shutdown()


def _enter_runner(settings: RunnerSettings, ray: Any, prefect_ray: Any) -> TaskRunner[Any]:
    """A connected runner; tried twice, since a busy head node may fail to start a client's server."""
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    for is_last in (False, True):
        runner: TaskRunner[Any] = prefect_ray.RayTaskRunner(settings.address, dict(quiet))
        try:
            return runner.__enter__()
        except ConnectionError:
            ray.shutdown()
            if is_last:
                raise
    raise AssertionError


def _cluster(settings: RunnerSettings) -> str:
    return f"the Ray cluster at {settings.address}" if settings.address else "Ray on this machine"


def _check_address(address: str) -> None:
    """Check a cluster's port; Ray itself would wait a minute or more for a missing cluster."""
    parts = urlsplit(address if "://" in address else f"ray://{address}")
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 0), ANSWER_SECONDS):
            return
    except (OSError, ValueError) as error:
        raise MissingPart(f"no Ray cluster answers at runner.address {address}; see docs/guides/cluster.md") from error
