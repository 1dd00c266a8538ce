"""The documentation site builds strictly, and pages need nothing from elsewhere."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from helpers.runs import REPOSITORY

CONFIG = REPOSITORY / "zensical.toml"
PROBLEM = re.compile(r"Warning: (.+)\n\s*╭─\[ (\S+)")
PAGES = {path.relative_to(REPOSITORY / "docs").as_posix() for path in (REPOSITORY / "docs").rglob("*.md")}
LOADED = re.compile(
    r"<(?:script|img|iframe)\b[^>]*\bsrc=\"(?:https?:)?//|<link\b[^>]*\brel=\"(?:stylesheet|preconnect)\"[^>]*//"
)


def build_site(folder: Path) -> tuple[int, list[tuple[str, str]]]:
    """`make docs` in a folder with a copy of configuration and pages: its exit code, and place and text of problems."""
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False, text=True)
    plain = re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
    return done.returncode, [(place, problem) for problem, place in PROBLEM.findall(plain)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("site")
    shutil.copy(CONFIG, copy)
    shutil.copytree(REPOSITORY / "docs", copy / "docs")
    return copy


def nav_pages(entries: list[dict[str, object]]) -> list[str]:
    pages: list[str] = []
    for entry in entries:
        for target in entry.values():
            pages += nav_pages(target) if isinstance(target, list) else [str(target)]
    return pages


def test_the_navigation_has_every_page_once() -> None:
    pages = nav_pages(tomllib.loads(CONFIG.read_text(encoding="utf-8"))["project"]["nav"])
    assert sorted(pages) == sorted(PAGES)


def test_the_site_builds_and_loads_nothing_from_elsewhere(folder: Path) -> None:
    assert build_site(folder) == (0, [])
    for page in PAGES:
        text = (folder / "site" / page).with_suffix(".html").read_text(encoding="utf-8")
        assert not LOADED.findall(text), page
    styles = "".join(path.read_text(encoding="utf-8") for path in (folder / "site").rglob("*.css"))
    assert not re.findall(r"@import[^;]*//|url\([\"']?(?:https?:)?//", styles)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["nowhere.md", "build.md#no-such-heading"])
def test_a_broken_link_fails_the_build(folder: Path, target: str) -> None:
    page = folder / "docs" / "guides" / "export.md"
    before = page.read_text(encoding="utf-8")
    page.write_text(f"{before}\n[broken]({target})\n", encoding="utf-8")
    code, problems = build_site(folder)
    page.write_text(before, encoding="utf-8")
    assert code != 0
    assert "guides/export.md" in {place.partition(":")[0] for place, _ in problems}
