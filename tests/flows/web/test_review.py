"""The page in a real browser: by keyboard alone, without JavaScript, and whatever the texts hold."""

from collections.abc import Callable, Iterator
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, expect
from playwright.sync_api import Page as Tab

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.validate.review.grades import Scale
from darklode.pipeline.validate.review.journal import AnswerJournal
from helpers.contrast import CONTRAST
from helpers.pages import OPEN, WIDE, quiet
from helpers.review_run import PER_QUERY, Page, Values, review_run, served

Visit = Callable[..., Tab]

NARROW = {"width": 360, "height": 640}


@pytest.fixture
def page(run: Run) -> Iterator[Page]:
    with served(review_run(run.store.url)) as page:
        yield page


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    with quiet(browser) as open_tab:

        def open_pair(page: Page, reviewer: str | None = "Ann", **options: object) -> Tab:
            path = f"pair?{urlencode({'reviewer': reviewer})}" if reviewer else ""
            return open_tab(page.url + path, **options)

        yield open_pair


def press(tab: Tab, key: str) -> None:
    """A key that leads to another page."""
    with tab.expect_navigation():
        tab.keyboard.press(key)
    tab.wait_for_selector(OPEN)


def shown(tab: Tab) -> str:
    return tab.locator("#chunk .text").inner_text().strip()


def said(page: Page) -> list[tuple[object, ...]]:
    columns = ("chunk_id", "reviewer", "relevance", "rationale")
    rows = page.answers().to_pylist()
    return [tuple(row[name] for name in columns) for row in sorted(rows, key=lambda row: row["answered_at"])]


@pytest.mark.slow
def test_ten_pairs_by_keyboard_alone(page: Page, visit: Visit) -> None:
    tab = visit(page, reviewer=None)
    expect(tab.locator("input[name=reviewer]")).to_be_focused()
    tab.keyboard.type("Ann")
    press(tab, "Enter")
    for number, key in enumerate("1010s11001"):
        expect(tab.locator("h1")).to_have_text(f"how do I rotate key {number // PER_QUERY}")
        assert shown(tab) == f"Rotating keys, part {number}: open Settings."
        press(tab, key)
    expected = {"1": 1, "0": 0, "s": None}
    assert said(page) == [
        (f"doc{number // 2}#{number}", "Ann", expected[key], None) for number, key in enumerate("1010s11001")
    ]
    expect(tab.locator("progress")).to_have_js_property("value", 10)
    tab.reload()
    assert shown(tab) == "Rotating keys, part 10: open Settings."


@pytest.mark.slow
def test_undo_several_times_also_after_a_reload_and_in_another_browser(page: Page, visit: Visit) -> None:
    tab = visit(page)
    for key in "10":
        press(tab, key)
    tab.keyboard.press("r")
    tab.keyboard.type("names the page")
    tab.keyboard.press("Enter")
    press(tab, "1")
    tab.reload()
    tab.wait_for_selector(OPEN)
    press(tab, "u")
    expect(tab.get_by_text("Your answer was: relevant.")).to_be_visible()
    expect(tab.locator("#rationale")).to_have_value("names the page")
    press(tab, "u")
    other = visit(page)
    assert shown(other) == "Rotating keys, part 1: open Settings."
    press(other, "u")
    assert said(page) == []
    expect(other.get_by_role("button", name="Undo")).to_be_disabled()
    for key in "001":
        press(other, key)
    assert [row[2] for row in said(page)] == [0, 0, 1]
    assert said(page)[2][3] == "names the page"


@pytest.mark.slow
def test_two_reviewers_at_once(page: Page, visit: Visit) -> None:
    ann, ben = visit(page, "Ann"), visit(page, "Ben")
    tabs = [ann, ben]
    while tabs:
        for tab in list(tabs):
            if tab.locator("#passage").count():
                press(tab, "1" if tab is ann else "0")
            else:
                tabs.remove(tab)
    rows = said(page)
    twice = {row[0] for row in rows if row[1] == "Ann"} & {row[0] for row in rows if row[1] == "Ben"}
    assert twice == {page.pairs[row].chunk_id for row in range(20) if page.pairs.shared[row]}
    assert {row[0] for row in rows} == {page.pairs[row].chunk_id for row in range(20)}
    assert (len(rows), len(AnswerJournal(page.run.store).read())) == (27, 27)
    expect(ann.get_by_text("All reviewers have labelled 20 of 20.")).to_be_visible()
    press(ann, "u")
    assert len(said(page)) == 26


@pytest.mark.slow
def test_a_key_that_is_held_labels_one_pair(page: Page, visit: Visit) -> None:
    tab = visit(page)
    with tab.expect_navigation():
        for _ in range(20):
            tab.keyboard.down("1")  # every one after the first is a repeat
    tab.wait_for_selector(OPEN)
    for _ in range(5):
        tab.keyboard.down("1")
    tab.keyboard.up("1")
    assert shown(tab) == "Rotating keys, part 1: open Settings."
    assert len(said(page)) == 1


@pytest.mark.slow
def test_a_double_click_labels_one_pair(page: Page, visit: Visit) -> None:
    tab = visit(page)
    with tab.expect_navigation():
        tab.get_by_role("button", name="Not relevant").dblclick(no_wait_after=True)
    tab.wait_for_selector(OPEN)
    assert [row[2] for row in said(page)] == [0]
    assert shown(tab) == "Rotating keys, part 1: open Settings."


@pytest.mark.slow
def test_a_page_takes_no_answer_in_its_first_moment(page: Page, visit: Visit) -> None:
    tab = visit(page)
    tab.clock.install()
    tab.clock.pause_at("2100-01-01")
    with tab.expect_navigation():
        tab.keyboard.press("1")
    for key in "11u":  # such as the second half of a double press
        tab.keyboard.press(key)
    tab.get_by_role("button", name="1 Relevant").click()
    tab.clock.run_for(1000)
    with tab.expect_navigation():
        tab.keyboard.press("0")
    assert [row[2] for row in said(page)] == [1, 0]


@pytest.mark.slow
def test_two_tabs_of_one_reviewer_do_not_mix_up_pairs(page: Page, visit: Visit) -> None:
    first, second = visit(page), visit(page)
    press(first, "1")
    press(first, "1")
    press(second, "0")  # it still shows the first pair
    assert said(page) == [("doc0#1", "Ann", 1, None), ("doc0#0", "Ann", 0, None)]
    assert shown(second) == "Rotating keys, part 2: open Settings."


@pytest.mark.slow
def test_keys_typed_into_the_rationale_do_not_label(page: Page, visit: Visit) -> None:
    tab = visit(page)
    tab.keyboard.press("r")
    expect(tab.locator("#rationale")).to_be_focused()
    tab.keyboard.type("10su?nr 1")
    tab.keyboard.press("Shift+Enter")
    tab.keyboard.type("0")
    tab.keyboard.press("Escape")
    expect(tab.locator("#rationale")).not_to_be_focused()
    expect(tab.locator("#rationale")).to_have_value("10su?nr 1\n0")
    assert said(page) == []
    press(tab, "1")
    assert said(page) == [("doc0#0", "Ann", 1, "10su?nr 1\n0")]


@pytest.mark.slow
def test_one_key_gives_a_usual_reason_and_takes_it_back(page: Page, visit: Visit) -> None:
    tab = visit(page)
    field = tab.locator("#rationale")
    tab.keyboard.press("g")
    expect(field).to_have_value("too general")
    tab.keyboard.press("d")
    expect(field).to_have_value("too general\noutdated")
    tab.keyboard.press("g")
    expect(field).to_have_value("outdated")
    press(tab, "0")
    assert said(page) == [("doc0#0", "Ann", 0, "outdated")]


@pytest.mark.slow
def test_keys_with_modifiers_are_the_browser_s(page: Page, visit: Visit) -> None:
    tab = visit(page)
    for key in ("Control+1", "Alt+0", "Meta+s", "Control+u"):
        tab.keyboard.press(key)
    assert said(page) == []
    assert shown(tab) == "Rotating keys, part 0: open Settings."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "code", "expected"),
    [("ы", "KeyS", [None]), ("&", "Digit1", [1]), ("o", "KeyS", []), ("F1", "Digit1", [])],
)
def test_other_keyboards_have_their_keys_in_the_same_places(
    page: Page, visit: Visit, typed: str, code: str, expected: list[object]
) -> None:
    tab = visit(page)
    pressed = "([key, code]) => document.body.dispatchEvent(new KeyboardEvent('keydown', {key, code, bubbles: true}))"
    tab.evaluate(pressed, [typed, code])
    if expected:
        expect(tab.get_by_role("button", name="Undo")).to_be_enabled()
    assert [row[2] for row in said(page)] == expected


@pytest.mark.slow
def test_neighbours_show_and_hide_and_leave_what_is_typed(page: Page, visit: Visit) -> None:
    tab = visit(page)
    tab.keyboard.press("r")
    tab.keyboard.type("half a sentence")
    tab.keyboard.press("Escape")
    tab.keyboard.press("n")
    expect(tab.locator(".near")).to_have_text("Rotating keys, part 1: open Settings.")
    expect(tab.locator("#rationale")).to_have_value("half a sentence")
    tab.keyboard.press("n")
    expect(tab.locator(".near")).to_have_count(0)
    press(tab, "1")
    assert said(page)[0][3] == "half a sentence"


@pytest.mark.slow
def test_neighbours_of_a_pair_that_was_answered_elsewhere_are_not_shown_for_the_next(page: Page, visit: Visit) -> None:
    first, second = visit(page), visit(page)
    press(first, "1")
    with second.expect_navigation():
        second.keyboard.press("n")
    second.wait_for_selector(OPEN)
    assert shown(second) == "Rotating keys, part 1: open Settings."
    press(second, "0")
    assert [(row[0], row[2]) for row in said(page)] == [("doc0#0", 1), ("doc0#1", 0)]


@pytest.mark.slow
def test_help_opens_and_closes_and_does_not_label(page: Page, visit: Visit) -> None:
    tab = visit(page)
    tab.keyboard.press("?")
    expect(tab.get_by_text("What is relevant?")).to_be_visible()
    tab.keyboard.press("1")
    tab.keyboard.press("Escape")
    expect(tab.get_by_text("What is relevant?")).to_be_hidden()
    assert said(page) == []
    press(tab, "1")
    assert len(said(page)) == 1


@pytest.mark.slow
def test_the_tab_key_reaches_everything_and_shows_where_it_is(page: Page, visit: Visit) -> None:
    tab = visit(page)
    reached = []
    for _ in range(8):
        tab.keyboard.press("Tab")
        reached.append(tab.evaluate("document.activeElement.innerText || document.activeElement.id"))
        outline = tab.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", reached[-1]
    found = " ".join(" ".join(one.split()) for one in reached)
    for name in ("Ann", "Show neighbours", "Open the document", "rationale", "1 Relevant", "0 Not relevant", "s Skip"):
        assert name in found


@pytest.mark.slow
def test_terms_of_the_query_are_marked(page: Page, visit: Visit) -> None:
    tab = visit(page)
    assert tab.locator("#chunk mark").all_inner_texts() == ["Keys", "Rotation", "Rotating", "keys", "0"]


@pytest.mark.slow
def test_grades_have_keys_of_their_own(run: Run, visit: Visit) -> None:
    scale = Scale({3: "made for this query", 2: "answers, with a flaw", 0: "not relevant"})
    with served(review_run(run.store.url), scale=scale) as page:
        tab = visit(page)
        for key in "320":
            press(tab, key)
        assert [row[2] for row in said(page)] == [3, 2, 0]
        expect(tab.get_by_role("button", name="Undo")).to_contain_text("Undo “0”")


@pytest.mark.slow
def test_without_javascript_forms_do_it(page: Page, visit: Visit) -> None:
    tab = visit(page, reviewer=None, java_script_enabled=False)
    tab.fill("input[name=reviewer]", "Ann & <b>Ben</b>")
    tab.get_by_role("button", name="Start").click()
    tab.fill("#rationale", "no script")
    tab.get_by_role("button", name="Not relevant").click()
    tab.get_by_role("link", name="Show neighbours").click()
    expect(tab.locator(".near")).to_have_text("Rotating keys, part 0: open Settings.")
    tab.get_by_role("button", name="Skip").click()
    tab.get_by_role("button", name="Help").click()
    expect(tab.get_by_text("What is relevant?")).to_be_visible()
    tab.keyboard.press("Escape")
    tab.get_by_role("button", name="Undo").click()
    assert shown(tab) == "Rotating keys, part 1: open Settings."
    assert said(page) == [("doc0#0", "Ann & <b>Ben</b>", 0, "no script")]
    expect(tab.get_by_role("link", name="Ann & <b>Ben</b>")).to_be_visible()


HOSTILE: Values = dict(
    enumerate(
        [
            "<script>alert(1)</script> key",
            "<img src=x onerror=alert(1)> key",
            '"><svg onload=alert(1)> rotate',
            "</textarea></form><form action=//evil.example><button>1",
            "a\u202egnp.key\u2066 \u200frotate",
            "key" * 3334,
            "| " + "k" * 400 + " | key |",
            "```\n" + "    x" * 200 + "\n{{ 7*7 }} {% raw %}",
            "&lt;b&gt; &amp; <b>key</b>",
            "<meta http-equiv=refresh content='0;url=//evil.example'>",
        ]
    )
)
EVIL_URLS: Values = {
    0: "javascript:alert(1)",
    2: " JaVaScRiPt:alert(1)",
    4: "data:text/html,<script>alert(1)</script>",
    6: "//evil.example/x",
    8: "http://[bad",
}


@pytest.mark.slow
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_hostile_texts_are_shown_as_they_are(run: Run, visit: Visit, size: dict[str, int]) -> None:
    pairs = len(HOSTILE)
    texts = {number: HOSTILE[number % pairs] for number in range(PER_QUERY * pairs)}
    built = review_run(run.store.url, len(texts), texts=texts, queries=HOSTILE, titles=texts, urls=EVIL_URLS)
    with served(built) as page:
        tab = visit(page, "<img src=x onerror=alert(1)>", viewport=size)
        for number in range(pairs):
            chunk = tab.locator("#chunk")
            shown = HOSTILE[number].replace("```", "").replace("\n", "")  # code is shown without its fence
            assert chunk.locator(".text").text_content() == shown
            assert chunk.locator(".title").text_content() == HOSTILE[number]
            assert tab.locator("h1").text_content() == HOSTILE[number // PER_QUERY]
            assert tab.get_by_role("link", name="Open the document").count() == 0
            assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
            expect(tab.get_by_role("button", name="Skip")).to_be_in_viewport()
            tab.keyboard.press("n")
            expect(tab.locator(".near")).to_have_count(1)
            press(tab, "1")
        assert len(said(page)) == pairs


@pytest.mark.slow
def test_a_document_opens_in_a_tab_that_is_told_nothing(page: Page, visit: Visit) -> None:
    link = visit(page).get_by_role("link", name="Open the document")
    expect(link).to_have_attribute("href", "https://example.org/keys")
    expect(link).to_have_attribute("rel", "noreferrer noopener")


@pytest.mark.slow
def test_a_narrow_screen_scrolls_down_only_and_buttons_stay(page: Page, visit: Visit) -> None:
    tab = visit(page, viewport=NARROW)
    for name in ("1 Relevant", "0 Not relevant", "s Skip", "u Undo", "Help"):
        expect(tab.get_by_role("button", name=name)).to_be_in_viewport()
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tab.goto(page.url)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_its_ground(page: Page, visit: Visit, scheme: str) -> None:
    tab = visit(page, color_scheme=scheme)
    press(tab, "1")
    tab.keyboard.press("n")
    expect(tab.locator(".near")).to_have_count(1)
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0] > 128")
    assert ground == (scheme == "light")
    texts = tab.evaluate(CONTRAST, "h1, p, a, bdi, span, mark, button, label, .text div, .near div div")
    assert len(texts) > 15
    assert min(texts) >= 4.5  # WCAG 2.2, 1.4.3


LONG = "How keys are rotated, step by step, in a long text. " * 9


@pytest.mark.slow
@pytest.mark.parametrize("height", [640, 700, 900])
def test_nothing_covers_the_rationale_on_a_narrow_screen(run: Run, visit: Visit, height: int) -> None:
    scale = Scale({3: "made for this query", 2: "answers, with a flaw", 0: "not relevant"})
    with served(review_run(run.store.url, texts={0: LONG}), scale=scale) as page:
        tab = visit(page, viewport={"width": 420, "height": height})
        tab.keyboard.press("r")
        expect(tab.locator("#rationale")).to_be_focused()
        field, footer = (tab.locator(one).bounding_box() for one in ("#rationale", "footer"))
        assert field
        assert footer
        assert 0 < field["y"] < field["y"] + field["height"] <= footer["y"]


@pytest.mark.slow
def test_the_first_page_says_what_is_relevant_and_what_grades_mean(run: Run, visit: Visit) -> None:
    with served(review_run(run.store.url), scale=Scale({3: "made for this query", 0: "not relevant"})) as page:
        tab = visit(page, reviewer=None)
        expect(tab.get_by_role("heading", name="What is relevant?")).to_be_visible()
        expect(tab.locator(".rules dt")).to_have_text(["3", "0"])


@pytest.mark.slow
def test_a_document_s_name_opens_it_at_the_chunk(run: Run, visit: Visit) -> None:
    whole = "# Keys\n\n```sh\nkey list\nkey rotate\n```\n"
    cut = whole.index("key rotate")
    texts, starts = {0: "key list", 1: "key rotate\n```\n"}, {1: cut}
    built = review_run(run.store.url, 2, texts=texts, documents={0: whole}, starts=starts, ends={1: len(whole)})
    with served(built) as page:
        tab = visit(page)
        press(tab, "1")
        expect(tab.locator("#chunk .fixed")).to_have_count(1)
        with tab.expect_popup() as opened:
            tab.get_by_role("link", name="doc0", exact=True).click()
        shown = opened.value
        expect(shown.locator("#chunk .fixed")).to_contain_text("key rotate")
        expect(shown.locator(".sheet")).to_contain_text("key list")
        assert shown.url.endswith("#chunk")


MARKDOWN = """## Rotating keys

Keys are **rotated** by `darklode`, see [the guide](https://x.test/guide). <img src=x onerror="document.title = 'x'">

- one key
  1. another

> so it is said

| key | age |
|-----|-----|
| *first* | 3 days |

```sh
rotate --all
```
"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [1440, 390])
def test_markdown_is_rendered_without_html_and_links(run: Run, visit: Visit, width: int) -> None:
    with served(review_run(run.store.url, texts={0: MARKDOWN})) as page:
        tab = visit(page, viewport={"width": width, "height": 900})
        chunk = tab.locator("#chunk .text")
        for element, text in {
            ".heading": "Rotating keys",
            ".prose strong": "rotated",
            ".prose code": "darklode",
            ".prose small": " (https://x.test/guide)",
            ".bullet.level1": "•one key",
            ".bullet.level2": "1.another",
            ".quotation": "so it is said",
            "td em": "first",
            ".fixed": "rotate --all",
        }.items():
            expect(chunk.locator(element)).to_have_text(text)
        expect(chunk.locator("a, img")).to_have_count(0)
        expect(chunk).to_contain_text("<img src=x onerror=")
        assert "review" in tab.title()
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
