from collections.abc import Iterator
from pathlib import Path

import pytest

from darklode.pipeline.browse.catalogue import Catalogue, open_catalogue
from helpers.browsing import built, mined


@pytest.fixture(scope="session")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    with open_catalogue(built(str(tmp_path_factory.mktemp("browsed") / "run"))) as catalogue:
        yield catalogue


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    with open_catalogue(mined(str(tmp_path_factory.mktemp("browsed_log") / "run"))) as catalogue:
        yield catalogue


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"
