"""The page's server over real sockets: who may ask, what may be sent, and what is kept of it."""

import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import pytest

from darklode.flows.web.server import ListenAddress, token_of
from darklode.pipeline.base.artifacts import Run, Store
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.validate.review.journal import AnswerJournal
from helpers.review_run import SHARED_EVERY, Page, Reply, ask, post, review_run, served


def pair_on(page: Page, reviewer: str) -> str | None:
    """The name of the pair that a reviewer is shown."""
    found = re.search(r'data-pair="(\w+)"', ask(page, f"pair?{urlencode({'reviewer': reviewer})}")[2])
    return found and found[1]


def label(page: Page, reviewer: str, answer: str, pair: str | None = None) -> Reply:
    shown = pair or pair_on(page, reviewer)
    assert shown
    return post(page, f"pair?{urlencode({'reviewer': reviewer})}", {"pair": shown, "answer": answer})


def test_an_answer_is_on_disk_before_the_next_page(page: Page) -> None:
    status, headers, _ = label(page, "Ann B", "1")
    assert (status, headers["location"]) == (303, "pair?reviewer=Ann+B")
    assert page.answers()["relevance"].to_pylist() == [1]
    assert page.answers()["judge_shown"].to_pylist() == [False]
    assert pair_on(page, "Ann B") == page.pairs[1].name


@pytest.mark.slow
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
@pytest.mark.parametrize("port", ["", ":1234"])
def test_loopback_s_names_are_answered_on_any_port(page: Page, host: str, port: str) -> None:
    assert ask(page, "", Host=host + port)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost@evil", "192.168.0.1", "0.0.0.0", ""]
)
def test_other_hosts_are_refused(page: Page, host: str) -> None:
    status, _, body = ask(page, "", Host=host)
    assert status == 400
    assert "<form" not in body


def test_a_host_that_is_allowed_by_name_is_answered(run: Run) -> None:
    with served(review_run(run.store.url), place=ListenAddress("127.0.0.1", 0, ("review.example", "fe80::1"))) as page:
        assert [ask(page, "", Host=host)[0] for host in ("review.example:80", "[fe80::1]:80", "x.review.example")] == [
            200,
            200,
            400,
        ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"answer": "1"},
        {"pair": "p0000000000000000", "answer": "1"},
        {"pair": "GOOD"},
        {"pair": "GOOD", "answer": "2"},
        {"pair": "GOOD", "answer": "-1"},
        {"pair": "GOOD", "answer": "1.0"},
        {"pair": "GOOD", "answer": "null"},
    ],
)
def test_bad_posts_keep_nothing_and_say_so(page: Page, fields: dict[str, str]) -> None:
    sent = {name: page.pairs[0].name if value == "GOOD" else value for name, value in fields.items()}
    status, _, body = post(page, "pair?reviewer=Ann", sent)
    assert status in (400, 410)
    assert "Nothing was saved" in body
    assert page.answers().num_rows == 0


@pytest.mark.slow
@pytest.mark.parametrize("reviewer", ["", "%20", "a%00b", "x" * 61, "%E2%80%AE"])
def test_a_bad_name_labels_nothing_and_is_asked_for_again(page: Page, reviewer: str) -> None:
    fields = {"pair": page.pairs[0].name, "answer": "1"}
    assert post(page, f"pair?reviewer={reviewer}", fields)[0] == 400
    status, _, body = ask(page, f"pair?reviewer={reviewer}")
    assert (status, "Your name" in body) == (400, True)
    assert page.answers().num_rows == 0


def test_a_pair_s_document_is_there_and_no_other(page: Page) -> None:
    status, _, body = ask(page, f"document?reviewer=Ann&pair={page.pairs[3].name}")
    assert (status, "Keys</h1>" in body) == (200, True)
    assert ask(page, "document?pair=p0000000000000000")[0] == ask(page, "document")[0] == 410


def test_files_and_broken_forms_are_no_answers(page: Page) -> None:
    part = b'--b\r\nContent-Disposition: form-data; name="answer"; filename="x"\r\n\r\n1\r\n--b--\r\n'
    for body in (part, b"--b\r\nbroken"):
        assert ask(page, "pair?reviewer=Ann", "POST", body, Content_Type="multipart/form-data; boundary=b")[0] == 400
    assert ask(page, "pair?reviewer=Ann", "PUT")[0] == 405
    assert page.answers().num_rows == 0


def test_the_same_post_again_keeps_nothing_and_does_not_touch_the_next_pair(page: Page) -> None:
    first = page.pairs[0].name
    with ThreadPoolExecutor(8) as pool:
        statuses = {reply[0] for reply in pool.map(lambda _: label(page, "Ann", "1", first), range(16))}
    assert statuses == {303}
    assert [answer.chunk_id for answer in AnswerJournal(page.run.store).read()] == [page.pairs[0].chunk_id]
    label(page, "Ann", "0", first)
    assert page.answers()["relevance"].to_pylist() == [0]


def test_an_undo_that_comes_twice_takes_one_answer_back(page: Page) -> None:
    label(page, "Ann", "1"), label(page, "Ann", "1")
    last = page.pairs[1].name
    assert [post(page, "undo?reviewer=Ann", {"pair": last})[0] for _ in range(3)] == [303] * 3
    assert page.answers()["chunk_id"].to_pylist() == [page.pairs[0].chunk_id]
    assert pair_on(page, "Ann") == last


def test_reviewers_at_once_lose_nothing(run: Run) -> None:
    with served(review_run(run.store.url, 60)) as page:

        def review(reviewer: str) -> int:
            labels = 0
            while shown := pair_on(page, reviewer):
                label(page, reviewer, str(labels % 2), shown)
                labels += 1
            return labels

        with ThreadPoolExecutor(4) as pool:
            labels = list(pool.map(review, ["Ann", "Ben", "Cem", "Dea"]))
        rows = page.answers().to_pylist()
    assert len(rows) == sum(labels)
    by_pair: dict[str, int] = {}
    for row in rows:
        by_pair[row["chunk_id"]] = by_pair.get(row["chunk_id"], 0) + 1
    assert by_pair == {f"doc{n // 2}#{n}": 1 if n % SHARED_EVERY else 4 for n in range(60)}


def test_an_answer_that_cannot_be_written_is_said_to_be_lost(
    page: Page, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.store.local is not None
    label(page, "Ann", "1")
    folder = run.store.local / "review"
    folder.rename(folder.with_name("moved"))
    folder.write_text("in the way")
    status, _, body = label(page, "Ann", "1")
    assert (status, "not saved" in body) == (507, True)
    assert "could not be saved" in capsys.readouterr().err
    folder.unlink()
    folder.with_name("moved").rename(folder)
    assert pair_on(page, "Ann") == page.pairs[1].name
    assert label(page, "Ann", "1")[0] == 303


def test_a_judge_that_is_shown_is_noted(run: Run) -> None:
    with served(review_run(run.store.url), show_judge=True) as page:
        assert "Judge: relevant, probability 0.10" in ask(page, "pair?reviewer=Ann")[2]
        label(page, "Ann", "1")
        assert page.answers()["judge_shown"].to_pylist() == [True]


def test_a_blind_page_does_not_hold_the_verdict(page: Page) -> None:
    assert "Judge:" not in ask(page, "pair?reviewer=Ann")[2]


@pytest.mark.parametrize(
    ("host", "names"), [("0.0.0.0", ()), ("::", ()), ("127.0.0.1", ("*",)), ("127.0.0.1", ("a:80",)), ("::1", ("",))]
)
def test_a_place_without_a_name_or_with_a_bad_one_is_refused(host: str, names: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError, match="allow-host"):
        ListenAddress(host, 0, names)


def test_a_place_says_what_browsers_may_call_it() -> None:
    assert ListenAddress("::1", 0, ()).allowed_hosts[-1] == "[::1]"
    assert ListenAddress("0.0.0.0", 0, ("box",)).allowed_hosts == ["127.0.0.1", "localhost", "[::1]", "box"]
    assert ListenAddress("10.1.2.3", 0, ()).allowed_hosts[-1] == "10.1.2.3"


def test_the_token_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    token, file = token_of(store), tmp_path / "review" / "token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert token_of(store) == token
    file.chmod(0o644)  # others may have read it
    assert token_of(store) != token
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("../" + "x" * 30)
    assert re.fullmatch(r"[\w-]{32}", token_of(store))
