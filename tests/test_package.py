"""The package as others install it: one name in site-packages, beside whatever folders they have themselves."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from helpers.runs import REPOSITORY

FILES = ["pyproject.toml", "README.md", "LICENSE", "src", "data", "flows", "pipeline", "prompts", "schemas"]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked: what the wheel is made from elsewhere."""
    source, to = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("sdist")
    for name in FILES:
        if name == "src":
            copy_links(source)
        else:
            (source / name).symlink_to(REPOSITORY / name)
    backend("build_sdist", source, to)
    # With tar itself: `TarFile.extractall` has its filter since Python 3.11.4 only, and warns without.
    subprocess.run(["tar", "-xzf", next(to.glob("*.tar.gz")), "-C", to], check=True)
    return next(path for path in to.iterdir() if path.is_dir())


def copy_links(source: Path) -> None:
    """`src` itself, so that nothing is written into the repository (an egg-info would be)."""
    package = source / "src" / "darklode"
    package.mkdir(parents=True)
    for path in (REPOSITORY / "src" / "darklode").iterdir():
        if path.is_symlink():
            (package / path.name).symlink_to(path.readlink())
        elif path.is_file():
            (package / path.name).write_bytes(path.read_bytes())
        else:
            shutil.copytree(path, package / path.name, ignore=shutil.ignore_patterns("__pycache__"))


def backend(hook: str, source: Path, to: Path) -> None:
    code = f"import sys; from setuptools import build_meta; build_meta.{hook}(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(to)], cwd=source, check=True, capture_output=True)


@pytest.fixture(scope="module")
def installed(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for site-packages, with the wheel of the source distribution in it."""
    to, site = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("site")
    backend("build_wheel", sdist, to)
    with zipfile.ZipFile(next(to.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    return site


def test_it_installs_one_package_with_all_that_it_reads(installed: Path) -> None:
    assert sorted(path.name for path in installed.iterdir() if path.suffix != ".dist-info") == ["darklode"]
    package = installed / "darklode"
    assert not [path for path in package.rglob("*") if path.is_symlink()]
    for folder in ("flows", "pipeline", "prompts", "schemas", "sample"):
        source = REPOSITORY / ("data/sample" if folder == "sample" else folder)
        kept = {path.relative_to(source) for path in source.rglob("*") if is_ours(path)}
        assert kept == {path.relative_to(package / folder) for path in (package / folder).rglob("*") if path.is_file()}
    assert (package / "py.typed").is_file()


def is_ours(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts


@pytest.mark.slow
def test_the_command_runs_beside_folders_of_the_same_names(installed: Path, tmp_path: Path) -> None:
    for name in ("flows", "pipeline", "prompts", "schemas"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the user's own')")
    code = "import runpy, sys; sys.path.insert(1, sys.argv.pop(1)); runpy.run_module('darklode', run_name='__main__')"
    command = [sys.executable, "-c", code, str(installed), "doctor"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    assert "embedded" in done.stdout
