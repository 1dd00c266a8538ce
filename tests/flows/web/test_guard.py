"""What stands before the pages, over real sockets: the token, bounds on what is sent, and headers."""

from urllib.parse import quote, urlencode

import pytest

from darklode.flows.web.guard import MAX_BODY_BYTES
from helpers.review_run import TOKEN, Page, ask


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/pair?reviewer=Ann",
        f"/{TOKEN}x/",
        f"/{TOKEN[:-1]}/",
        f"/{TOKEN.upper()}/",
        "/ü/",
        f"//{TOKEN}/",
        "/favicon.ico",
    ],
)
def test_nothing_is_there_without_the_token(page: Page, path: str) -> None:
    status, headers, body = ask(page, quote(path, safe="/?="))
    assert status == 404
    assert TOKEN not in body + str(headers)
    assert "Traceback" not in body


def test_an_address_without_its_last_slash_is_mended(page: Page) -> None:
    status, headers, _ = ask(page, f"/{TOKEN}")
    assert (status, headers["location"]) == (307, f"{TOKEN}/")


def test_every_reply_keeps_browsers_in(page: Page) -> None:
    for path in ("", "pair?reviewer=Ann", "none", "/"):
        headers = ask(page, path)[1]
        assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert (headers["referrer-policy"], headers["x-content-type-options"]) == ("no-referrer", "nosniff")
        assert headers["cache-control"] == "no-store"
        assert headers["server"] is None


def test_a_body_that_is_too_large_is_refused(page: Page) -> None:
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    fields = urlencode({"pair": page.pairs[0].name, "answer": "1"}).encode()
    rest = b"&rationale=" + b"x" * MAX_BODY_BYTES
    assert ask(page, "pair?reviewer=Ann", "POST", fields + rest, **form)[0] == 413
    assert ask(page, "pair?reviewer=Ann", "POST", iter([fields, rest]), **form)[0] == 413
    assert page.answers().num_rows == 0
    assert ask(page, "pair?reviewer=Ann", "POST", fields + rest[: 60_000 - len(fields)], **form)[0] == 303
    assert page.answers().num_rows == 1
