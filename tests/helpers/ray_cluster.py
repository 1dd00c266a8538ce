"""A Ray cluster of two machines on loopback: `ray start` twice, each a process of its own, with a token.

Ray takes 127.0.0.1 for "some address of this machine" and would listen on all of them, unless it is told that clusters
are not meant to be; then it lets no second machine in. So the second is started by this file, which says so only after
Ray has read its settings.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

LOOPBACK = "127.0.0.1"
ONLY_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
SOON = {"RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "3"}
MACHINE = ("--block", "--node-ip-address", LOOPBACK, "--num-cpus", "1", "--object-store-memory", "80000000")


@dataclass
class Cluster:
    """Processes, addresses, and the environment of whoever may use it; `join` starts a second machine."""

    head: subprocess.Popen[bytes]
    worker: subprocess.Popen[bytes]
    join: Callable[[], subprocess.Popen[bytes]]
    address: str
    client: str
    environment: dict[str, str]

    def at_work(self) -> list[psutil.Process]:
        """What works on a shard just now on the second machine."""
        return shards_of(self.worker)

    def kill_one_at_work(self) -> None:
        """Wait for a shard that is worked on, on any machine, and end its process."""
        wait_for(lambda: shards_of(self.worker) or shards_of(self.head), "a shard")
        kill((shards_of(self.worker) or shards_of(self.head))[:1])

    def lose_the_worker(self) -> None:
        """As by a power cut."""
        kill(family(self.worker.pid))
        self.worker.wait()

    def replace_the_worker(self) -> None:
        """Let another machine join in place of the lost one."""
        self.worker = self.join()


def shards_of(machine: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """What works on a shard just now on a machine."""
    return [one for one in family(machine.pid) if command_of(one).startswith("ray::shard")]


def command_of(process: psutil.Process) -> str:
    """Its command line; empty where it is gone."""
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def holders(token: Path) -> list[psutil.Process]:
    """Every process that was given this cluster's token, but this one."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            mine = process.environ().get("RAY_AUTH_TOKEN_PATH") == str(token)
            if mine and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@contextlib.contextmanager
def cluster(environment: dict[str, str]) -> Iterator[Cluster]:
    """Two machines with one CPU each, for the length of a block; no process of theirs is left over."""
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # pytest's are too long for the names of Unix sockets
    token = folder / "token"
    token.touch(0o600)
    token.write_text(secrets.token_hex(32))
    ours = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
    environment = environment | ours | ONLY_LOOPBACK | SOON | {"TMPDIR": str(folder)}  # what is killed cannot tidy up
    gcs, client, first = free_ports()
    ports = [("--min-worker-port", str(n), "--max-worker-port", str(n + 49)) for n in (first, first + 50)]
    address = f"{LOOPBACK}:{gcs}"
    start = ["--head", "--port", str(gcs), "--ray-client-server-port", str(client), "--temp-dir", str(folder)]
    ray = [str(Path(sys.executable).with_name("ray")), "start", *MACHINE]
    second = [sys.executable, __file__, "start", *MACHINE, "--address", address]
    processes: list[subprocess.Popen[bytes]] = []

    def run(name: str, command: list[str]) -> subprocess.Popen[bytes]:
        processes.append(started(command, environment, folder / f"{name}.log"))
        return processes[-1]

    try:
        head = run("head", [*ray, *start, "--include-dashboard", "false", *ports[0]])
        join = partial(run, "worker", [*second, *ports[1]])
        yield Cluster(head, join(), join, address, f"ray://{LOOPBACK}:{client}", environment)
    finally:
        for process in reversed(processes):
            end(process, signal.SIGTERM, 15)
        left = holders(token)
        kill(left)
        shutil.rmtree(folder, ignore_errors=True)
    assert not left, f"processes of the cluster were left over: {left}"


def started(command: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Run `ray start --block`, and wait until the machine is up."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    try:
        wait_for(lambda: process.poll() is not None or b"Ray runtime started" in log.read_bytes(), log.name)
        assert process.poll() is None, log.read_text()
    except BaseException:
        end(process, signal.SIGTERM, 15)
        raise
    return process


def free_ports() -> tuple[int, int, int]:
    """For the head, for clients, and the first of a hundred for workers, which the other two are not among."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(2)]
        for probe in probes:
            probe.bind((LOOPBACK, 0))
        gcs, client = (int(probe.getsockname()[1]) for probe in probes)
    first = next(
        n for n in range(20_000 + 100 * (os.getpid() % 50), 32_000, 100) if not {gcs, client} & set(range(n, n + 100))
    )
    return gcs, client, first


def _start_second() -> None:
    from ray._private import ray_constants, services
    from ray.scripts.scripts import main

    ray_constants.ENABLE_RAY_CLUSTER = True
    services.get_node_ip_address = lambda _address=None: LOOPBACK
    main()


if __name__ == "__main__":
    _start_second()
else:
    from helpers.commands import wait_for
    from helpers.processes import end, family, kill
