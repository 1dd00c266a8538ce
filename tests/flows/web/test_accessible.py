"""All pages as axe-core reads them: nothing that it calls serious or critical, in light and in dark."""

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.nights import TABLES_READ, LastDays, nights_page
from helpers import browsing
from helpers.days import days, garbage, judged
from helpers.finished_run import CHUNK_IDS, QUERY_IDS
from helpers.report_runs import rendered
from helpers.review_run import review_run, served
from helpers.searching_pages import answered, two_systems
from helpers.small_log import FIRST, query_id

GRAVE = {"serious", "critical"}


def grave(browser: Browser, urls: Iterable[str]) -> list[str]:
    """What axe-core holds against pages, in both schemes."""
    found = []
    for scheme in ("light", "dark"):
        context = browser.new_context(viewport={"width": 420, "height": 800}, color_scheme=scheme)
        tab = context.new_page()
        for url in urls:
            tab.goto(url)
            for one in Axe().run(tab).response["violations"]:
                nodes = [node["html"][:100] for node in one["nodes"][:3]]
                found += [f"{url} {scheme}: {one['id']} {nodes}"] if one["impact"] in GRAVE else []
        context.close()
    return found


@pytest.mark.slow
def test_what_it_looks_for_it_finds(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<p style='color: #ccc; background: #fff'>hardly to be read</p>")
    assert "color-contrast" in str(grave(browser, [(tmp_path / "page.html").as_uri()]))


@pytest.mark.slow
@pytest.mark.parametrize("mined", [False, True], ids=["benchmark", "log"])
def test_browsing(run: Run, browser: Browser, mined: bool) -> None:
    made = (browsing.mined if mined else browsing.built)(run.store.url)
    tenant, query, document = "default", query_id("reset password"), "d1"
    if not mined:
        tenant, query, document = browsing.ACME, QUERY_IDS[0], CHUNK_IDS[0].split("#")[0]
    paths = ["", "queries", "triplets", "rejects", f"query?{urlencode({'tenant': tenant, 'id': query})}"]
    paths += [f"document?{urlencode({'tenant': tenant, 'id': document})}", *([] if mined else ["pairs?q=one"])]
    with browsing.served(made) as page:
        assert grave(browser, [page.url + path for path in paths]) == []


@pytest.mark.slow
def test_reviewing(run: Run, browser: Browser) -> None:
    with served(review_run(run.store.url), show_judge=True) as page:
        first = page.pairs[0].name
        paths = ["", "pair?reviewer=Ann", f"pair?reviewer=Ann&around={first}", f"document?pair={first}", "nowhere"]
        assert grave(browser, [page.url + path for path in paths]) == []


@pytest.mark.slow
def test_searching(browser: Browser, tmp_path: Path) -> None:
    with answered(two_systems(tmp_path / "texts")) as page:
        assert grave(browser, [page.url + path for path in ("", "?q=reset+keys", "nowhere")]) == []


@pytest.mark.slow
def test_the_nights(run: Run, browser: Browser, tmp_path: Path) -> None:
    log = days(12)
    log[FIRST + timedelta(10)] = garbage(10)
    judged(run, log)
    file = tmp_path / "nights.html"
    last = LastDays.read(run.tables(*TABLES_READ), 60)
    file.write_bytes(nights_page("runs/mined", last, lambda option, day: f"darklode mine {option} {day}"))
    assert grave(browser, [file.as_uri()]) == []


@pytest.mark.slow
def test_the_report(run: Run, browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_bytes(rendered(browsing.built(run.store.url)))
    assert grave(browser, [file.as_uri()]) == []
