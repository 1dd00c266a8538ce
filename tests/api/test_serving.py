"""`serve`, `browse` and `review` from Python."""

import json
import urllib.request
from pathlib import Path

import pytest

import darklode
from helpers.indexed import fitting

pytestmark = pytest.mark.server


@pytest.mark.parametrize("page", [darklode.browse, darklode.review])
def test_pages_of_a_run_are_served(copied: Path, page: object) -> None:
    with page(darklode.open(copied)) as pages:  # type: ignore[operator]
        assert b"<html" in urllib.request.urlopen(pages.url).read()


def test_a_review_is_served_once(copied: Path) -> None:
    with darklode.review(copied), pytest.raises(darklode.DarklodeError, match="already being reviewed"):
        darklode.review(copied)


@pytest.mark.slow
def test_an_index_answers_queries(tmp_path: Path) -> None:
    with darklode.serve(fitting(tmp_path)) as pages:
        data = json.dumps({"query": "anything"}).encode()
        with urllib.request.urlopen(f"{pages.url}search", data) as answer:
            assert len(json.loads(answer.read())["hits"]) == 10


def test_what_cannot_be_served_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(darklode.DarklodeError, match="holds no run"):
        darklode.serve(tmp_path)
    with pytest.raises(darklode.DarklodeError, match="holds no run"):
        darklode.browse(tmp_path)
    with pytest.raises(darklode.DarklodeError, match="holds no run"):
        darklode.review(tmp_path / "misspelled")
    assert not (tmp_path / "misspelled").exists()
