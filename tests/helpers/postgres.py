"""A real PostgreSQL server of the tests."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from helpers.commands import background, free_port, wait_for

BINARIES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)
PASSWORD = "0123456789abcdef"
NOT_INSTALLED = "PostgreSQL is not installed: apt-get install postgresql"


class Postgres:
    """A PostgreSQL cluster of its own, with a password.

    Args:
        folder: where it lies; other users must be able to enter it.
        user, database: owner and name of its database.
    """

    def __init__(self, folder: Path, user: str, database: str) -> None:
        self.port = free_port()
        self._folder = folder
        self._as: list[str] = []
        self._user, self._database = user, database
        (folder / "password").write_text(PASSWORD)
        if os.geteuid() == 0:  # root it refuses
            self._as = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
            for place in (folder, folder / "password"):
                shutil.chown(place, "postgres", "postgres")
        data = ["--pgdata", str(folder / "data"), "--username", self._user, "--encoding", "UTF8"]
        self.run("initdb", *data, "--auth", "scram-sha-256", "--pwfile", str(folder / "password"), "--no-sync")

    def command(self, name: str, *arguments: str) -> list[str]:
        return [*self._as, str(BINARIES / name), *arguments]  # type: ignore[operator]

    def run(self, name: str, *arguments: str) -> str:
        environment = os.environ | {"PGPASSWORD": PASSWORD}
        done = subprocess.run(
            self.command(name, *arguments),
            env=environment,
            cwd=self._folder,
            capture_output=True,
            check=False,
            text=True,
        )
        assert done.returncode == 0, done
        return done.stdout

    def ask(self, sql: str) -> str:
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--username", self._user]
        return self.run("psql", *where, "--dbname", self._database, "--tuples-only", "--no-align", "--command", sql)

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        where = ["-D", str(self._folder / "data"), "-h", "127.0.0.1", "-p", str(self.port), "-k", str(self._folder)]
        with background(self.command("postgres", *where, "-F"), os.environ, self._folder / "log", self._folder):
            local = ["--host", "127.0.0.1", "--port", str(self.port), "--username", self._user]
            ready = self.command("pg_isready", *local)
            wait_for(lambda: subprocess.run(ready, check=False, capture_output=True).returncode == 0, "PostgreSQL")
            self.run("createdb", *local, self._database)
            yield
