"""The report in a real browser: on wide and narrow screens, in the dark, on paper, and full of texts that mean harm."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from darklode.pipeline.base.artifacts import Run
from helpers.adapted import adapted_tables
from helpers.finished_run import finished_run
from helpers.report_runs import hostile_run, random_run, rendered, rewrite
from helpers.small_log import mine, random_log

WIDTHS = (1280, 360)


class Visit:
    """A page that was opened, with what it said on the console and asked of the network."""

    def __init__(self, context: BrowserContext, file: Path) -> None:
        self.page: Page = context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())


@pytest.fixture(scope="module", params=["finished", "hostile", "random", "mined", "adapted", "empty"])
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a run of each kind."""
    run = Run(str(tmp_path_factory.mktemp("reports") / request.param))
    if request.param == "finished":
        finished_run(run.store.url)
    elif request.param == "hostile":
        hostile_run(run.store.url)
    elif request.param == "random":
        random_run(run.store.url, 11, judge_id="embedded-1:" + "0123456789abcdef" * 12)
    elif request.param == "mined":
        mine(run, random_log(7))
    elif request.param == "adapted":
        adapted_tables(run)
    return written(run)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a finished run with texts that are cut."""
    run = finished_run(str(tmp_path_factory.mktemp("reports") / "finished"))
    rewrite(run, "triplets", lambda _, rows: [row | {"positive": "needle " + "hay " * 300 + "end."} for row in rows])
    return written(run)


def written(run: Run) -> Path:
    run.store.write("report.html", rendered(run))
    return Path(run.store.path("report.html"))


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    with browser.new_context(viewport={"width": WIDTHS[0], "height": 900}, color_scheme="light") as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_the_screen_is_silent_and_asks_for_nothing(browser: Browser, file: Path, width: int) -> None:
    with browser.new_context(viewport={"width": width, "height": 900}) as context:
        visit = Visit(context, file)
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        wide = "document.querySelectorAll('main *')"
        inside = "one.closest('.scroll, .track, .axis, details:not([open])')"
        beyond = f"[...{wide}].filter(one => !{inside} && one.getBoundingClientRect().right > innerWidth + 1)"
        assert visit.page.evaluate(f"{beyond}.map(one => one.outerHTML.slice(0, 200))") == []
        assert visit.page.evaluate("window.harmed === undefined")
        assert (visit.said, visit.asked) == ([], [file.as_uri()])


@pytest.mark.slow
def test_no_policy_is_needed_to_keep_texts_from_running(context: BrowserContext, file: Path, tmp_path: Path) -> None:
    """Without the policy nothing runs or loads either: the escaping holds by itself."""
    html = file.read_text()
    bare = tmp_path / "bare.html"
    bare.write_text(html.replace("Content-Security-Policy", "x-nothing"))
    visit = Visit(context, bare)
    assert visit.page.evaluate("window.harmed === undefined")
    assert visit.asked == [bare.as_uri()]


@pytest.mark.slow
def test_the_policy_stops_what_were_not_escaped(context: BrowserContext, finished: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    harm = "<script>window.harmed = 1</script><img src='x.png' onerror='window.harmed = 1'>"
    harm += "<style>body { color: red }</style>"
    broken.write_text(finished.read_text().replace("<main>", f"<main>{harm}"))
    visit = Visit(context, broken)
    assert visit.page.evaluate("window.harmed === undefined")
    assert colour(visit.page, "color") != "rgb(255, 0, 0)"
    stopped = " ".join(said for said in visit.said if "Content Security Policy" in said)
    assert all(what in stopped for what in ("inline script", "inline style", "x.png"))


def colour(page: Page, name: str, of: str = "body") -> str:
    return str(page.evaluate(f"getComputedStyle(document.querySelector('{of}')).getPropertyValue('{name}')"))


@pytest.mark.slow
def test_a_dark_screen_has_dark_paper(context: BrowserContext, finished: Path) -> None:
    page = Visit(context, finished).page
    light = [colour(page, "background-color"), colour(page, "color"), colour(page, "fill", "rect.a")]
    page.emulate_media(color_scheme="dark")
    dark = [colour(page, "background-color"), colour(page, "color"), colour(page, "fill", "rect.a")]
    assert light[0] == "rgb(255, 255, 255)"
    assert all(one != other for one, other in zip(light, dark, strict=True))
    assert sum(map(int, dark[0][4:-1].split(","))) < 120


@pytest.mark.slow
def test_on_paper_it_is_light_and_everything_is_open(context: BrowserContext, finished: Path) -> None:
    page = Visit(context, finished).page
    whole = page.locator(".quote details > .text").first
    assert not whole.is_visible()
    page.emulate_media(media="print", color_scheme="dark")
    assert colour(page, "background-color") == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    assert whole.is_visible()
    assert all(table.is_visible() for table in page.locator("table").all())
    assert page.pdf(format="A4").startswith(b"%PDF")


@pytest.mark.slow
def test_it_can_be_read_by_keyboard_alone(context: BrowserContext, finished: Path) -> None:
    page = Visit(context, finished).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the figures"
    page.keyboard.press("Enter")
    page.locator(".numbers summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator(".numbers table").first.is_visible()


@pytest.mark.slow
def test_a_link_of_the_contents_shows_its_figure(context: BrowserContext, finished: Path) -> None:
    page = Visit(context, finished).page
    page.locator("nav a", has_text="Retriever overlap").click()
    expect(page.locator("#audit-overlap")).to_be_in_viewport()
    assert page.url.endswith("#audit-overlap")


def contrast(one: str, other: str) -> float:
    """WCAG's ratio of two colours given as rgb(…)."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(rgb: str) -> float:
    parts = [int(part) / 255 for part in rgb[4:-1].split(",")]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_and_so_do_marks(context: BrowserContext, finished: Path, scheme: str) -> None:
    """WCAG 2.2 AA: 4.5 for text, 3 for what a chart is made of."""
    page = Visit(context, finished).page
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    paper = colour(page, "background-color")
    for of in (
        "h1",
        ".kind, .judge",
        "figcaption p",
        ".badge ~ ol a",
        "nav li li a",
        "summary",
        ".role",
        ".value",
        "th",
    ):
        assert contrast(colour(page, "color", of), paper) >= 4.5, of
    warning = ".warnings"
    assert contrast(colour(page, "color", warning), colour(page, "background-color", warning)) >= 4.5
    assert contrast(colour(page, "fill", "svg text"), paper) >= 4.5
    for tone in ("a", "b", "c", "d", "faint"):
        page.locator("rect").first.evaluate("(one, tone) => one.setAttribute('class', tone)", tone)
        assert contrast(colour(page, "fill", f"rect.{tone}"), paper) >= 3, tone
    for depth in range(10):
        page.locator(".matrix tbody td").first.evaluate("(one, depth) => { one.className = 'h' + depth }", depth)
        pair = [colour(page, name, f".matrix .h{depth}") for name in ("color", "background-color")]
        assert contrast(*pair) >= 4.5, depth
