"""The report as a page: well-formed, harmless, the same for the same tables, and of whatever there is."""

import hashlib
import re
import shutil
from base64 import b64encode
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.formatting import clean
from darklode.pipeline.report.page import SECTION_MODULES, filled_sections, load_sections
from helpers.finished_run import _STAGES, finished_run
from helpers.report_runs import (
    HOSTILE,
    figure,
    figures,
    hostile_run,
    opened,
    parsed,
    random_run,
    rendered,
    rewrite,
    rows_of,
    text_of,
)
from helpers.small_log import mine, random_log

STAGES = list(_STAGES)
WEAK = "Weak labels from the embedded scorer"
LOADS = {
    "script",
    "img",
    "link",
    "iframe",
    "object",
    "embed",
    "video",
    "audio",
    "base",
    "form",
    "input",
    "image",
    "use",
}


@pytest.fixture(scope="module", params=["finished", "hostile", "random", "mined", "empty"])
def any_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of each kind, which is only read."""
    run = Run(str(tmp_path_factory.mktemp("any") / "run"))
    url = run.store.url
    if request.param == "finished":
        return finished_run(url)
    if request.param == "hostile":
        return hostile_run(url)
    if request.param == "random":
        return random_run(url, 3)
    if request.param == "mined":
        mine(run, random_log(7))
    return run


@pytest.fixture(scope="module")
def any_page(any_run: Run) -> bytes:
    return rendered(any_run)


@pytest.mark.slow
def test_the_page_is_well_formed_and_its_links_lead_somewhere(any_page: bytes) -> None:
    root = parsed(any_page)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    links = [element.get("href", "") for element in root.iter("a")]
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert all(link.startswith("#") for link in links)
    assert {element.get("aria-labelledby") for element in root.iter("figure")} <= set(ids)


@pytest.mark.slow
def test_the_page_loads_nothing_and_its_policy_forbids_it(any_page: bytes) -> None:
    root = parsed(any_page)
    assert not LOADS & {element.tag for element in root.iter()}
    assert not {name for element in root.iter() for name in element.attrib} & {"src", "style", "srcset", "action"}
    assert not [name for element in root.iter() for name in element.attrib if name.startswith("on")]
    (style,) = root.iter("style")
    assert "url(" not in (style.text or "")
    assert "@import" not in (style.text or "")
    (policy,) = [one.get("content", "") for one in root.iter("meta") if one.get("http-equiv")]
    digest = b64encode(hashlib.sha256((style.text or "").encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes(any_run: Run, any_page: bytes, tmp_path: Path) -> None:
    assert rendered(any_run) == any_page
    if any_run.manifests():
        copy = shutil.copytree(any_run.store.url, tmp_path / "elsewhere" / Path(any_run.store.url).name)
        assert rendered(Run(str(copy))) == any_page


@pytest.mark.slow
def test_texts_from_outside_stay_texts(run: Run) -> None:
    html = rendered(hostile_run(run.store.url))
    root = parsed(html)
    said = text_of(root)
    shown = clean(" ".join(HOSTILE.split()))
    assert "�" in shown
    for key in (
        "judges",
        "random-triplets",
        "largest-clusters",
        "languages",
        "audit-overlap",
        "queries-without-positives",
    ):
        assert "<script>window.harmed = true</script></style>" in text_of(figure(root, key)), key
    assert shown[:60] in said
    assert "{{ 7 * 7 }}" in said
    assert not re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", html)


@pytest.mark.slow
def test_texts_from_outside_are_isolated_from_the_direction_around_them(run: Run) -> None:
    root = parsed(rendered(hostile_run(run.store.url)))
    isolated = {
        id(inner) for one in root.iter() if one.tag == "bdi" or one.get("dir") == "auto" for inner in one.iter()
    }
    parents = {child: parent for parent in root.iter() for child in parent}
    svg = {id(inner) for one in root.iter("svg") for inner in one.iter()}
    loose = [
        parents[one].tag
        for one in root.iter()
        if "\u202e" in (one.text or "") and id(one) not in isolated and id(one) not in svg
    ]
    assert loose == []


@pytest.mark.slow
@pytest.mark.parametrize("complete", range(len(STAGES)))
def test_a_run_that_was_killed_shows_what_is_there_and_says_what_is_not(run: Run, complete: int) -> None:
    finished_run(run.store.url)
    for stage in STAGES[complete:]:
        run.store.delete(f"manifests/{stage}.json")
    run.store.write("progress/search/one.json", b"{}")
    root = parsed(rendered(run))
    said = text_of(next(root.iter("header")))
    assert "This run is incomplete" in said
    for stage in STAGES[complete:]:
        assert f"{stage}: incomplete" in said
    for stage in STAGES[:complete]:
        assert f"{stage}: " not in said
    assert ("search: incomplete; 1 work units done" in said) == (complete <= STAGES.index("search"))
    shown = figures(root)
    assert "stages" in shown
    for key, stage in (
        ("query-length", "clean"),
        ("found-by", "pool"),
        ("labels", "label"),
        ("audit-overlap", "audit"),
    ):
        assert (key in shown) == (STAGES.index(stage) < complete)
    assert ("queries have no certain positive" in said) == (STAGES.index("label") < complete)


def test_triplets_come_first_and_four_of_them_are_open(run: Run) -> None:
    root = parsed(rendered(random_run(run.store.url, 3)))
    assert figures(root)[0] == "random-triplets"
    random_triplets = figure(root, "random-triplets")
    shown, folded = [one for one in random_triplets.iter("ol") if one.get("class") == "quotes"]
    assert (len(shown), len(folded)) == (4, 6)
    assert "positive" in text_of(shown[0])
    assert "negative" in text_of(shown[0])


def test_a_run_without_any_table_says_so(run: Run) -> None:
    root = parsed(rendered(run))
    assert "This run is incomplete" in text_of(root)
    assert figures(root) == ["stages"]


@pytest.mark.slow
def test_results_of_tables_that_changed_since_are_named(run: Run) -> None:
    mine(run, random_log(7))
    assert "outdated" not in text_of(parsed(rendered(run)))
    rewrite(run, "click_evidence", lambda _, rows: rows[1:])
    assert "mined_pairs: outdated: its input tables have changed" in text_of(parsed(rendered(run)))


@pytest.mark.parametrize(("judge_id", "weak"), [("embedded-1:00ff", True), ("llm-1", False), ("not-embedded", False)])
def test_nobody_misses_that_labels_are_the_embedded_scorers(run: Run, judge_id: str, weak: bool) -> None:
    root = parsed(rendered(random_run(run.store.url, 1, judge_id=judge_id)))
    first_warnings = next(one for one in root.iter("section") if one.get("class") == "warnings").find("ul")
    assert first_warnings is not None
    assert (WEAK in [text_of(one) for one in first_warnings.iter("summary")]) == weak
    badges = [text_of(one) for one in root.iter() if one.get("class") == "badge"]
    assert ("weak labels" in badges) == weak
    assert judge_id in text_of(next(root.iter("header")))


def test_the_page_of_a_mined_run_says_that_clicks_are_not_judgments(run: Run) -> None:
    mine(run, random_log(7))
    said = text_of(next(parsed(rendered(run)).iter("header")))
    assert "Clicks are not relevance judgments" in said
    assert "the embedded scorer" not in said, "nobody ranks"


def test_long_tables_are_cut_and_it_is_said(run: Run) -> None:
    random_run(run.store.url, 5, tenants=70, judge_id="embedded-1")
    html = rendered(run)
    root = parsed(html)
    assert len(html) < 1_000_000
    assert len(rows_of(root, "queries-without-positives")) == 10
    assert re.search(r"First 10 of \d+ rows\.", text_of(figure(root, "queries-without-positives")))


@pytest.mark.slow
def test_long_texts_are_cut_and_their_rest_is_on_demand(run: Run) -> None:
    run = hostile_run(run.store.url)
    root = parsed(rendered(run))
    (first, *_) = figure(root, "random-triplets").iter("details")
    begins = text_of(first.find("summary"))  # type: ignore[arg-type]
    assert begins.endswith(" …")
    assert len(begins) < 300
    assert len(text_of(first)) > 900


def test_every_key_can_name_an_artifact_and_is_used_once() -> None:
    keys = [figure.key for section in load_sections() for figure in section.figures]
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", key) for key in keys)
    assert len(set(keys)) == len(keys) > 30
    assert [section.key for section in load_sections()] == list(SECTION_MODULES)


def test_what_is_shown_is_what_is_published(run: Run) -> None:
    finished_run(run.store.url)
    with opened(run) as given:
        published = [one for _, figures in filled_sections(given) for one in figures]
    root = parsed(rendered(run))
    assert [one.figure.key for one in published] == figures(root)
    for one in published:
        tables = [table for table in figure(root, one.figure.key).iter("table") if table.get("class") != "matrix"]
        for table in tables:
            assert len(list(table.iter("tr"))) == one.table.num_rows + 1
