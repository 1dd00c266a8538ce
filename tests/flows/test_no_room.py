"""A build that finds no room, or no leave to write: one line, nothing half, and no new try."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.commands import Environment, Outcome, build_command, built, one_line, run_inside

pytestmark = pytest.mark.server


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that is too small for the sample's run."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)], check=False).returncode:
        pytest.skip("only root mounts")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def nothing_half(shown: Outcome, folder: Path) -> None:
    assert "tried again" not in shown.out
    assert [path.name for path in folder.rglob("*.tmp")] == []


@pytest.mark.slow
def test_a_full_disk_ends_a_build_which_goes_on_when_there_is_room(served: Environment, disk: Path) -> None:
    shown = run_inside(build_command(disk / "run"), served)
    one_line(shown, r"cannot be written \(No space left on device\); free space on that disk, and run the same command")
    nothing_half(shown, disk)
    assert (disk / "run" / "manifests").exists(), "some stage was complete"
    subprocess.run(["mount", "-o", "remount,size=50m", str(disk)], check=True)
    assert " up to date" in built(build_command(disk / "run"), served)


@pytest.mark.parametrize("place", ["read-only", "a file in the way"])
def test_what_cannot_be_written_to_is_said_before_any_work(served: Environment, disk: Path, place: str) -> None:
    if place == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    else:
        (disk / "runs").write_text("a file")
    shown = run_inside(build_command(disk / "runs" / "first"), served)
    one_line(shown, "(Read-only file system|Not a directory|File exists)")
    assert "ingest_documents" not in shown.out
    nothing_half(shown, disk)
