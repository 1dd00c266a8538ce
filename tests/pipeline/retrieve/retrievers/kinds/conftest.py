from pathlib import Path

import pytest

from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from helpers.searching import GARAGE


@pytest.fixture
def garage(tmp_path: Path) -> Corpus:
    """Chunks on cars, some of which say automobile, on fruit, and on cables."""
    return Corpus(lambda: iter([GARAGE]), len(GARAGE), tmp_path)
