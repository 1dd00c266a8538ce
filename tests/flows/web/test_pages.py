"""What all pages share: addresses, and one style and script that the policy allows."""

import pytest

from darklode.flows.web.pages import Pages, is_web, link
from darklode.pipeline.report.page import policy_hash


@pytest.mark.parametrize(
    ("url", "web"),
    [
        ("https://docs.example/a", True),
        (" HTTP://docs.example", True),
        ("javascript:alert(1)", False),
        ("//docs.example", False),
        ("data:text/html,x", False),
        ("http://[bad", False),
        (None, False),
    ],
)
def test_only_addresses_of_the_web_become_links(url: str | None, web: bool) -> None:
    assert is_web(url) is web


def test_an_address_leaves_out_what_is_not_there() -> None:
    assert link("pairs", {"q": "a&b=c#d", "tenant": ""}, page=None) == "pairs?q=a%26b%3Dc%23d"
    assert link("pairs") == "pairs"


def test_the_policy_names_the_style_and_script_of_every_page() -> None:
    pages = Pages("x", ("page.css", "browse/browse.css"), ("keys.js", "browse/browse.js"))
    html = pages.render("error.html", heading="h", message="w", back=None, back_label="")
    style = html.partition("<style>")[2].partition("</style>")[0]
    script = html.partition("<script>")[2].partition("</script>")[0]
    assert len(style) > len(script) > 100
    for part in (style, script):
        assert f"'sha256-{policy_hash(part)}'" in pages.policy
