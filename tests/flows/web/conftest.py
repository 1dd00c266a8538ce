from collections.abc import Iterator

import pytest

from darklode.pipeline.base.artifacts import Run
from helpers.review_run import Page, review_run, served


@pytest.fixture
def page(run: Run) -> Iterator[Page]:
    with served(review_run(run.store.url)) as page:
        yield page
