"""The pages of a run over real sockets and in a real browser: who may ask, hostile texts, keys, narrow and dark."""

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, expect
from playwright.sync_api import Page as Tab

from darklode.pipeline.base.artifacts import Run
from helpers.browsing import ACME, Browsed, built, mined, served
from helpers.contrast import CONTRAST
from helpers.finished_run import CHUNK_IDS, QUERY_IDS, QUERY_TEXTS, finished_run
from helpers.pages import OPEN, WIDE, quiet
from helpers.report_runs import HOSTILE, hostile_run, rewrite
from helpers.review_run import TOKEN, ask, post
from helpers.small_log import query_id

Visit = Callable[..., Tab]
NARROW = {"width": 420, "height": 800}
DOC = CHUNK_IDS[0].split("#")[0]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    with served(built(str(tmp_path_factory.mktemp("browse") / "run"))) as page:
        yield page


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    with served(mined(str(tmp_path_factory.mktemp("browse_log") / "run"))) as page:
        yield page


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    with quiet(browser) as open_tab:
        yield lambda page, path="", **options: open_tab(page.url + path, **options)


def query(number: int = 0, **more: str) -> str:
    return "query?" + urlencode({"tenant": ACME, "id": QUERY_IDS[number]} | more)


def press(tab: Tab, key: str) -> None:
    """A key that leads to another page."""
    with tab.expect_navigation():
        tab.keyboard.press(key)
    tab.wait_for_selector(OPEN)


PATHS = ["", "queries", "pairs", "triplets", "rejects", query(), f"document?{urlencode({'tenant': ACME, 'id': DOC})}"]


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_pages_are_there_for_who_has_the_token_and_for_loopback_s_names_alone(page: Browsed, path: str) -> None:
    status, headers, body = ask(page, path)
    assert (status, "<h1" in body) == (200, True)
    assert "default-src 'none'" in headers["content-security-policy"]
    assert ask(page, path, Host="evil.example")[0] == 400
    assert ask(page, f"/{TOKEN}x/{path}")[0] == ask(page, f"/{path}")[0] == 404


def test_nothing_can_be_sent(page: Browsed) -> None:
    assert post(page, "queries", {"q": "x"})[0] == 405
    assert ask(page, "queries", "DELETE")[0] == 405


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("query?tenant=acme&id=nobody", 410),
        ("document?tenant=acme&id=../../etc/passwd", 410),
        ("triplet?tenant=acme&id=0", 410),
        ("triplet", 410),
        ("settings.yaml", 404),
        ("pairs/", 404),
        ("queries?page=-7&order=x&split=%00&q=%00%27", 200),
        ("pairs?min_probability=1e999&max_probability=nan&retriever=%27", 200),
        (f"pairs?q={quote('x ' * 900)}", 200),
    ],
)
def test_what_cannot_be_shown_is_said(page: Browsed, path: str, status: int) -> None:
    assert ask(page, path)[0] == status


def test_an_address_is_without_what_was_left_empty(page: Browsed) -> None:
    status, headers, _ = ask(page, "pairs?q=&tenant=acme&min_probability=&order=")
    assert (status, headers["location"]) == (303, "pairs?tenant=acme")
    assert ask(page, "pairs?q=")[1]["location"] == "pairs"


def test_a_query_s_page_has_ranks_verdicts_and_people(page: Browsed) -> None:
    body = ask(page, query())[2]
    assert "<bdi>../dense one</bdi> <b>1</b>" in body
    assert "0.700" in body
    assert "a wrong page" in body


def test_a_log_s_query_has_its_evidence(log: Browsed) -> None:
    own = urlencode({"tenant": "default", "id": query_id("reset password")})
    body = ask(log, f"query?{own}")[2]
    assert all(one in body for one in ("Click evidence", "Title of d1", "source of evidence", "click_one_hop"))


@pytest.mark.slow
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_hostile_texts_are_shown_as_they_are(run: Run, visit: Visit, size: dict[str, int]) -> None:
    built = hostile_run(run.store.url)
    titles = {"title": HOSTILE, "url": "javascript:alert(1)", "text": f"```\n{HOSTILE}", "heading": HOSTILE}

    def change(_table: str, rows: list[dict[str, object]]) -> list[dict[str, object]]:
        return [row | {name: titles[name] for name in titles.keys() & row.keys()} for row in rows]

    for stage in ("ingest_documents", "chunk"):
        rewrite(built, stage, change)
    own = urlencode({"tenant": HOSTILE, "id": QUERY_IDS[0]})
    document = urlencode({"tenant": HOSTILE, "id": DOC, "chunk": CHUNK_IDS[0]})
    paths = ["", "queries", "pairs", "triplets", f"query?{own}", f"document?{document}", f"pairs?q={quote(HOSTILE)}"]
    with served(built) as page:
        for path in paths:
            tab = visit(page, path, viewport=size)
            assert tab.evaluate("window.harmed") is None
            assert tab.locator('a[href^="javascript"]').count() == 0
            assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), path
        shown = visit(page, f"query?{own}").locator("h1").text_content() or ""
        assert "<script>window.harmed = true</script>" in shown


@pytest.mark.slow
def test_by_keyboard_from_a_search_to_a_query_and_back(page: Browsed, visit: Visit) -> None:
    tab = visit(page)
    tab.keyboard.press("/")
    tab.keyboard.type("SAY hello")
    press(tab, "Enter")
    assert urlsplit(tab.url).query == "q=SAY+hello"
    expect(tab.locator("mark")).to_have_text(["say", "hello"] * 2)
    tab.keyboard.press("j")
    tab.keyboard.press("j")
    tab.keyboard.press("k")
    press(tab, "Enter")
    expect(tab.locator("h1")).to_have_text(QUERY_TEXTS[1])
    press(tab, "]")
    expect(tab.locator("h1")).not_to_have_text(QUERY_TEXTS[1])
    press(tab, "[")
    tab.go_back()
    tab.go_back()
    tab.go_back()
    expect(tab.locator("article.item")).to_have_count(2)


@pytest.mark.slow
def test_texts_open_with_a_key_and_the_mouse(page: Browsed, visit: Visit) -> None:
    tab = visit(page, "triplets")
    tab.keyboard.press("j")
    closed = tab.locator("article.item").first.locator("details.negatives")
    expect(closed).not_to_have_attribute("open", "")
    tab.keyboard.press("x")
    expect(closed).to_have_attribute("open", "")
    tab.keyboard.press("x")
    expect(closed).not_to_have_attribute("open", "")


@pytest.mark.slow
def test_a_filter_acts_at_once_and_is_an_address(page: Browsed, visit: Visit) -> None:
    tab = visit(page, "pairs")
    with tab.expect_navigation():
        tab.get_by_label("verdict").select_option("relevant")
    tab.wait_for_url("**/pairs?outcome=relevant")
    expect(tab.locator(".verdict").first).to_have_text("relevant")
    again = visit(page, "pairs?outcome=relevant")
    assert again.locator("article.item").count() == tab.locator("article.item").count() == 12


@pytest.mark.slow
def test_without_javascript_forms_do_it(page: Browsed, visit: Visit) -> None:
    tab = visit(page, "pairs", java_script_enabled=False)
    tab.get_by_label("tenant").select_option(ACME)
    tab.get_by_label("Search pairs").fill("hello")
    tab.get_by_role("button", name="Search").click()
    expect(tab.locator("article.item")).to_have_count(4)
    tab.get_by_role("link", name='say "hello"').first.click()
    expect(tab.locator("h1")).to_have_text('say "hello"')


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["pairs?q=one", "triplets", "rejects", query()])
def test_every_text_stands_out_from_its_ground(page: Browsed, visit: Visit, scheme: str, path: str) -> None:
    tab = visit(page, path, color_scheme=scheme)
    texts = tab.evaluate(CONTRAST, "main *:not(details, progress, option)")
    assert len(texts) > 15
    assert min(texts) >= 4.5  # WCAG 2.2, 1.4.3


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_a_narrow_screen_scrolls_down_only(page: Browsed, visit: Visit, path: str) -> None:
    tab = visit(page, path, viewport=NARROW)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_run_is_left_as_it_was(tmp_path: Path) -> None:
    run = finished_run(str(tmp_path / "run"))
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    with served(run) as page:
        for path in PATHS:
            ask(page, path)
    after = {path for path in tmp_path.rglob("*") if path.is_file()}
    stamps = {path for path in after if path.parent == tmp_path / "run" / "verified"}
    assert after - stamps == before
