"""A real headless Chromium, taken by `pytest_plugins = ["browser"]`."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")

# As root it has no sandbox; the rest keeps it from looking for servers of its maker's.
OPTIONS = """--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync""".split()


@pytest.fixture(scope="module")  # while it is open its event loop is this thread's, and no other can run
def browser() -> Iterator[Browser]:
    """One browser for a module's tests; `browser.new_context()` is a user of its own."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("there is no Chromium; install Debian's package chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=OPTIONS)
        yield opened
        opened.close()
