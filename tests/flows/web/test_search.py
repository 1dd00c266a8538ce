"""The service of `darklode serve` over real sockets: what it answers, what it refuses, and its page."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import pyarrow.compute as pc
import pytest
from playwright.sync_api import Browser

from darklode.flows.jobs.build_index import build_index, update_index
from darklode.flows.open_index import export_index, open_service
from darklode.flows.open_systems import open_index_check
from darklode.flows.web.guard import MAX_BODY_BYTES
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import DoesNotFit
from darklode.pipeline.index.searcher import VectorSearcher
from darklode.pipeline.serve.service import SearchRequest
from darklode.pipeline.train.release.adapter import Adapter
from helpers.adapted import model_in, of_tenants, shipped_adapter, word
from helpers.indexed import fitting
from helpers.pages import quiet
from helpers.review_run import Reply, ask
from helpers.runs import put
from helpers.searching_pages import Answering, answered, answering, two_systems

QUERY = f"how {word(7)}"


@pytest.fixture(scope="module")
def folder(shipped: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the build that the adapter was made from."""
    out = tmp_path_factory.mktemp("served") / "index"
    build_index(str(shipped / "run"), "tiny", str(out), {"index": {"tuning_queries": 20}})
    return out


@pytest.fixture(scope="module")
def page(folder: Path, shipped: Path) -> Iterator[Answering]:
    """The index, searched by base and adapted queries."""
    with answering(str(folder), ["base", str(shipped / "adapter")]) as page:
        yield page


def asked(page: Answering, **question: object) -> Reply:
    return ask(page, "search", "POST", json.dumps(question).encode())  # type: ignore[arg-type]


def ids(reply: Reply) -> list[str]:
    assert reply[0] == 200, reply
    return [row["text_id"] for row in json.loads(reply[2])["hits"]]


def test_each_system_answers_as_the_index_does_for_its_encoder(page: Answering, folder: Path, shipped: Path) -> None:
    adapter = str(shipped / "adapter")
    with VectorSearcher(str(folder)) as searcher:
        base = searcher.search([QUERY], 7).ids(0)
        adapted = searcher.search([QUERY], 7, Adapter.open(adapter)).ids(0)
    assert base != adapted
    assert ids(asked(page, query=QUERY, depth=7)) == ids(asked(page, query=QUERY, depth=7, system="base")) == base
    assert ids(asked(page, query=QUERY, depth=7, system=adapter)) == adapted
    first = json.loads(asked(page, query=QUERY, depth=1)[2])
    rows = Run(str(shipped / "run")).tables("chunks").read("chunks").to_pylist()
    said = {row["chunk_id"]: row["text"] for row in rows}
    assert (first["query"], first["system"]) == (QUERY, "base")
    assert set(first["hits"][0]) == {"rank", "text_id", "doc_id", "title", "heading", "text", "score"}
    assert first["hits"][0]["text"] == said[base[0]]


def test_a_run_without_an_index_is_searched_exactly(page: Answering, shipped: Path) -> None:
    with answering(str(shipped / "run")) as other:
        assert ids(asked(other, query=QUERY)) == ids(asked(page, query=QUERY))  # the index is flat: exact, too


def test_an_index_of_vectors_gives_ids(tmp_path: Path) -> None:
    with answering(fitting(tmp_path)) as other:
        found = json.loads(asked(other, query="anything", depth=3)[2])["hits"]
        assert len(found) == 3
        assert {row["text"] for row in found} == {None}
        assert found[0]["text_id"] in ask(other, "?q=anything")[2]  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tenants_index(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An index of two tenants with the same ids, whose texts begin with the tenant's word."""
    root = tmp_path_factory.mktemp("tenants")
    run = of_tenants(root, MARKS)
    build_index(
        run.store.url, model_in(root).model, str(root / "index"), {"index": {"tuning_queries": 20}}, tenants="all"
    )
    return str(root / "index")


MARKS = {"acme": "acmeonly", "birch": "birchonly"}


def test_an_index_of_several_tenants_answers_for_the_named_one(tenants_index: str) -> None:
    with answering(tenants_index) as page:
        for tenant, mark in MARKS.items():
            hits = json.loads(asked(page, query=QUERY, tenant=tenant, depth=100)[2])["hits"]
            assert len(hits) == 100
            assert {hit["text"].split()[0] for hit in hits} == {mark}
            shown = str(ask(page, f"?q=how&tenant={tenant}")[2])  # type: ignore[arg-type]
            assert [other for other in MARKS.values() if other in shown] == [mark]
        for question, reason in (({}, "required"), ({"tenant": "cedar"}, "unknown tenant 'cedar'")):
            status, _, said = asked(page, query=QUERY, **question)
            assert (status, json.loads(said)) == (400, {"error": f"tenant: {reason}; available: acme, birch"})


def test_an_adapter_of_one_tenant_answers_for_it_alone(tmp_path: Path) -> None:
    """Other tenants are searched by the base, or not at all without it; never by the adapter."""
    run = of_tenants(tmp_path, MARKS)
    adapter = shipped_adapter(tmp_path, Run(str(tmp_path / "tenant-0"))).store.url
    index, settings = str(tmp_path / "index"), {"index": {"tuning_queries": 20}}
    encoders = {"tiny": model_in(tmp_path).model_dump(mode="json")}
    build_index(run.store.url, "tiny", index, settings | {"encoders": encoders}, tenants="all")
    with answering(index, [adapter, "base"]) as page, VectorSearcher(index) as searcher:
        wanted = searcher.search([QUERY], 10, Adapter.open(adapter), "acme").ids(0)
        assert wanted != searcher.search([QUERY], 10, tenant="acme").ids(0)
        assert ids(asked(page, query=QUERY, tenant="acme")) == wanted
        assert json.loads(asked(page, query=QUERY, tenant="birch")[2])["system"] == "base"
        assert ids(asked(page, query=QUERY, tenant="birch")) == searcher.search([QUERY], 10, tenant="birch").ids(0)
        status, _, said = asked(page, query=QUERY, tenant="birch", system=adapter)
        assert (status, json.loads(said)) == (
            400,
            {"error": f"system: {adapter!r} is not for tenant birch; available: base"},
        )
        assert ask(page, "?q=how&tenant=birch")[0] == 200
        with pytest.raises(DoesNotFit, match="is for tenant acme, not for birch; use the base encoder or"):
            searcher.search([QUERY], 10, Adapter.open(adapter), "birch")
    with open_service(index, [adapter], None) as served:
        assert served.service.tenants == ("acme",)
        assert served.about.endswith("not served, because no --encoder is for them: birch (add --encoder base)")
    with pytest.raises(DoesNotFit, match="is for tenant acme, not for birch"), open_service(index, [adapter], "birch"):
        pass


def test_one_tenant_of_several_can_be_served_and_exported(tenants_index: str, tmp_path: Path) -> None:
    with open_service(tenants_index, [], "birch") as served:
        assert served.service.tenants == ("birch",)
    with pytest.raises(DoesNotFit, match="a tenant is required; choose from acme, birch"):
        export_index(tenants_index, "qdrant", tmp_path / "all", None, None)
    export_index(tenants_index, "qdrant", tmp_path / "birch", None, "birch")
    points = "".join(path.read_text() for path in (tmp_path / "birch").glob("points-*"))
    assert [mark for mark in MARKS.values() if mark in points] == ["birchonly"]


def test_an_index_of_several_tenants_is_checked_and_updated(tenants_index: str) -> None:
    with open_index_check(tenants_index) as check:
        assert all(finding.fits for finding in check.findings())
    source = json.loads(Path(tenants_index, "inputs.json").read_text())["source"]
    assert update_index(tenants_index, source).startswith("Nothing changed. ")


def test_tenants_that_come_and_leave_are_served_once_the_index_is_updated(tmp_path: Path) -> None:
    """Also one without triplets: `all` are the tenants with texts."""
    run = of_tenants(tmp_path, MARKS | {"cedar": "cedaronly"})
    chunks, triplets = run.tables("chunks").read("chunks"), run.tables("triplets").read("triplets")
    put(run, "triplets", triplets.filter(pc.not_equal(triplets["tenant"], "cedar")))
    put(run, "chunks", chunks.filter(pc.not_equal(chunks["tenant"], "cedar")))
    index, settings = str(tmp_path / "index"), {"index": {"tuning_queries": 20}}
    build_index(run.store.url, model_in(tmp_path).model, index, settings, tenants="all")
    put(run, "chunks", chunks.filter(pc.not_equal(chunks["tenant"], "acme")))
    with open_service(index, [], None) as served:
        assert served.service.tenants == ("birch",)
    with open_index_check(index) as check:
        assert [finding.subject for finding in check.findings() if not finding.fits] == [f"texts of {run.store.url}"]
    update_index(index, run.store.url)
    with open_service(index, [], None) as served:
        assert served.service.tenants == ("birch", "cedar")
        for tenant in served.service.tenants:
            (hits,) = served.service.answers([SearchRequest("base", QUERY, 5, tenant)])
            assert {hit["text"].split()[0] for hit in hits} == {f"{tenant}only"}
    with open_index_check(index) as check:
        assert all(finding.fits for finding in check.findings())
    export_index(index, "qdrant", tmp_path / "cedar", None, "cedar")
    with pytest.raises(DoesNotFit, match="there is no tenant acme"):
        export_index(index, "qdrant", tmp_path / "acme", None, "acme")


def test_many_at_once_get_what_each_gets_alone(page: Answering) -> None:
    queries = [f"how {word(7 * n)}" for n in range(60)]
    alone = [ids(asked(page, query=query)) for query in queries[:5]]
    with ThreadPoolExecutor(30) as pool:
        together = list(pool.map(lambda query: ids(asked(page, query=query)), queries))
    assert together[:5] == alone
    assert {len(found) for found in together} == {10}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "Invalid JSON"),
        (b"[1]", "should be an object"),
        (b"{}", "query: Field required"),
        (b'{"query": 3}', "query: Input should be a valid string"),
        (b'{"query": " \\n"}', "must not be empty"),
        (b'{"query": "\\ud800"}', "Invalid JSON"),
        (json.dumps({"query": "x" * 2001}).encode(), "query: String should have at most 2000 characters"),
        (b'{"query": "a", "depth": 0}', "depth: Input should be greater than or equal to 1"),
        (b'{"query": "a", "depth": 101}', "depth: Input should be less than or equal to 100"),
        (b'{"query": "a", "depth": "5"}', "depth: Input should be a valid integer"),
        (b'{"query": "a", "system": "bse"}', "system: unknown system 'bse'; available: base, "),
        (b'{"query": "a", "deepness": 5}', "deepness: Extra inputs are not permitted"),
    ],
)
def test_bad_questions_are_told_why(page: Answering, body: bytes, reason: str) -> None:
    status, headers, said = ask(page, "search", "POST", body)  # type: ignore[arg-type]
    assert (status, headers["content-type"]) == (400, "application/json")
    assert reason in json.loads(said)["error"]


def test_what_else_is_refused_is_json_for_scripts_and_a_page_for_people(page: Answering) -> None:
    large = json.dumps({"query": "x" * MAX_BODY_BYTES}).encode()
    for method, path, body, status in (("POST", "search", large, 413), ("GET", "search", None, 405)):
        told = ask(page, path, method, body)  # type: ignore[arg-type]
        assert told[0] == status
        assert set(json.loads(told[2])) == {"error"}
    assert ask(page, "search", "POST", b"{}", Host="evil.example")[0] == 400  # type: ignore[arg-type]
    for path in ("/search", "/", "/nowhere"):  # without the token
        status, _, said = ask(page, path, "POST", b"{}")  # type: ignore[arg-type]
        assert (status, "hits" in said) == (404, False)
    status, _, said = ask(page, f"?q={'x' * 2001}")  # type: ignore[arg-type]
    assert (status, "at most" in said) == (400, True)


def test_health_needs_no_token_and_tells_nothing(page: Answering) -> None:
    for path in ("/health", "health"):
        status, headers, said = ask(page, path)  # type: ignore[arg-type]
        assert (status, json.loads(said)) == (200, {"status": "ok", "waiting": 0})
        assert headers["content-security-policy"].startswith("default-src 'none'")
    assert ask(page, "/health", Host="evil.example")[0] == 400  # type: ignore[arg-type]


def test_where_no_more_may_wait_the_answer_is_503(folder: Path) -> None:
    with answering(str(folder), waiting=0) as busy:
        status, headers, said = asked(busy, query="a")
        assert (status, headers["retry-after"]) == (503, "1")
        assert json.loads(said)["error"] == "queue full (0 requests waiting); retry in 1 s"
        status, _, said = ask(busy, "?q=a")  # type: ignore[arg-type]
        assert (status, "retry in" in said) == (503, True)
        assert ask(busy, "/health")[0] == 200  # type: ignore[arg-type]


def test_the_page_shows_two_systems_and_what_one_alone_has(tmp_path: Path) -> None:
    with answered(two_systems(tmp_path / "texts")) as page:
        empty, said = ask(page, "")[2], ask(page, f"?{urlencode({'q': 'resets <script>'})}")[2]  # type: ignore[arg-type]
    assert "<section" not in empty
    assert "not for production" in empty
    assert said.count("<section") == 2
    assert said.count("<article") == 4
    assert said.count('<span class="tag yes">only here</span>') == 2 + 1  # and where it is explained
    assert '<span class="tag">rank 1 in the other</span>' in said
    assert '<span class="tag">rank 2 in the other</span>' in said
    assert "1 of the top 10 results are shared" in said
    assert "<mark>reset</mark> the key" in said
    assert "&lt;img src=x onerror=alert(1)&gt; <mark>resets</mark>" in said
    assert "doc_id 0" in said  # in the place of a title
    assert not [tag for tag in ("<img", "<b>", "<i>", "resets <script>") if tag in said]


def test_the_page_works_in_a_browser_and_makes_no_noise(browser: Browser, tmp_path: Path) -> None:
    with answered(two_systems(tmp_path / "texts")) as page, quiet(browser) as open_tab:
        for script in (True, False):
            tab = open_tab(page.url, java_script_enabled=script)
            tab.get_by_role("searchbox").fill("resets")
            tab.keyboard.press("Enter")
            tab.wait_for_url("**/?q=resets")
            assert tab.get_by_role("article").count() == 4
            assert tab.locator("article.only").count() == 2
            long = tab.locator("details").first
            assert "more" in long.inner_text()
            long.locator("summary").click()
            assert long.get_attribute("open") is not None
