"""Where shards are worked on: in the flow's process, or on a Ray cluster through Prefect's Ray task runner."""

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
    """Where the flow that calls this has its shards worked on, for the length of a block.

    The cluster is entered with the first shard: a flow whose stages stand needs none.

    Raises:
        MissingPart: the Ray packages are not installed, or there is no such cluster.
    """
    if settings.kind == "local":
        yield here
        return
    check_runner(settings)
    with ExitStack() as block:
        yield OnRay(lambda: block.enter_context(_connect_runner(settings)), settings, run.store.url)


class OnRay:
    """Work as tasks of the current flow on Ray; results wait below the run's root.

    Ray starts a task that lost its machine again elsewhere, by its own count of retries. A result that is written
    outlives the machine that wrote it, the cluster and this process.
    """

    def __init__(self, enter: Callable[[], TaskRunner[Any]], settings: RunnerSettings, root: str) -> None:
        self._enter, self._root = enter, root
        self._resources = {"num_cpus": settings.num_cpus, "num_gpus": settings.num_gpus}
        # Prefect sends the context along. The flow's is plain data; that of the stage's task holds its open output.
        self._flow = contextvars.copy_context()

    @cached_property
    def _runner(self) -> TaskRunner[Any]:
        return self._enter()

    @property
    def places(self) -> int:
        _ = self._runner  # only who is let in is told
        has = import_module("ray").cluster_resources()
        cpus, gpus = self._resources["num_cpus"], self._resources["num_gpus"]
        fit = int(has.get("CPU", 0) / cpus)
        return min(fit, int(has.get("GPU", 0) / gpus)) if gpus else fit

    def __call__(self, work: Callable[[T], Pieces], shards: Sequence[T]) -> Iterator[Pieces]:
        """See `Spread`.

        Raises:
            MissingPart: Ray gave a shard up.
        """
        futures = [self._flow.copy().run(self._submit, work, shard) for shard in shards]
        for shard, future in zip(shards, futures, strict=True):
            yield load_shard_result(Run(self._root).store, shard.folder, _count(shard, future))

    def _submit(self, work: Callable[[T], Pieces], shard: T) -> Any:
        from prefect import task
        from prefect.cache_policies import NO_CACHE

        of_shard = task(name="shard", task_run_name=shard.name, cache_policy=NO_CACHE, persist_result=False)
        with import_module("prefect_ray.context").remote_options(**self._resources):
            return self._runner.submit(of_shard(run_shard), {"work": work, "shard": shard, "root": self._root})


def run_shard(work: Callable[[T], Pieces], shard: T, root: str) -> int:
    """Work on a shard wherever this runs, and leave its result below the root; returns the number of pieces."""
    return save_shard_result(Run(root).store, shard.folder, work(shard))


def _count(shard: Shard, future: Any) -> int:
    try:
        return int(future.result())
    except import_module("ray").exceptions.RayError as error:
        raise MissingPart(
            f"Ray gave up on {shard.name} ({error.__class__.__name__}): look at the cluster's machines and their "
            "memory; the same command goes on from here"
        ) from error


def check_runner(settings: RunnerSettings) -> list[str]:
    """See that packages and cluster are there; nothing is imported.

    Raises:
        MissingPart: one of them is not.
    """
    if settings.kind == "ray":
        if not all(map(find_spec, ("ray", "prefect_ray"))):
            raise MissingPart('runner.kind ray needs more packages: pip install "darklode[ray]"')
        if settings.address:
            _check(settings.address)
    return []


@contextmanager
def _connect_runner(settings: RunnerSettings) -> Iterator[TaskRunner[Any]]:
    ray, prefect_ray = import_module("ray"), import_module("prefect_ray")
    try:
        runner = _enter_runner(settings, ray, prefect_ray)
    except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
        raise MissingPart(f"{_cluster(settings)} lets nobody in: {error}; see docs/cluster.md") from error
    try:
        yield runner
    finally:
        runner.__exit__(None, None, None)
        ray.shutdown()


def _enter_runner(settings: RunnerSettings, ray: Any, prefect_ray: Any) -> TaskRunner[Any]:
    """A connected runner. A busy head may fail to start a client's server once, hence a second try."""
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    for last in (False, True):
        runner: TaskRunner[Any] = prefect_ray.RayTaskRunner(settings.address, dict(quiet))
        try:
            return runner.__enter__()
        except ConnectionError:
            ray.shutdown()
            if last:
                raise
    raise AssertionError


def _cluster(settings: RunnerSettings) -> str:
    return f"the Ray cluster at {settings.address}" if settings.address else "Ray on this machine"


def _check(address: str) -> None:
    """Ray itself waits a minute or more for a cluster that is not there."""
    parts = urlsplit(address if "://" in address else f"ray://{address}")
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 0), ANSWER_SECONDS):
            return
    except (OSError, ValueError) as error:
        raise MissingPart(f"no Ray cluster answers at runner.address {address}; see docs/cluster.md") from error
