"""An index on S3: made, checked, searched, served, exported and brought up to date as one in a folder is."""

import json
from pathlib import Path

import pytest

from darklode.flows.jobs.build_index import build_index, update_index
from darklode.pipeline.base.artifacts import Store
from darklode.pipeline.index.searcher import VectorSearcher
from helpers.adapted import model_in, word
from helpers.commands import Call
from helpers.indexed import IDS, clustered, put_vectors, settings_in
from helpers.review_run import ask
from helpers.searching_pages import answering

QUERY = f"how {word(7)}"


@pytest.mark.slow
def test_an_index_on_s3_is_the_local_one(shipped: Path, tmp_path: Path, bucket: str, call: Call) -> None:
    run, url, folder = shipped / "run", f"{bucket}/index", tmp_path / "index"
    for out in (url, folder):
        build_index(str(run), "tiny", str(out), {"index": {"kind": "hnsw"}})
    with VectorSearcher(url) as there, VectorSearcher(str(folder)) as here:
        assert there.facts["files"] == here.facts["files"]
        assert (there.texts, there.facts["recall"]) == (here.texts, here.facts["recall"])
    assert call("index", "check", url).code == 0
    told = json.loads(call("search", run, QUERY, "--index", url, "--json").out)["systems"][0]
    with answering(url, ["base", str(shipped / "adapter")]) as page:
        status, _, said = ask(page, "search", "POST", json.dumps({"query": QUERY}).encode())  # type: ignore[arg-type]
    assert status == 200
    assert json.loads(said)["hits"] == told["hits"]
    exported = [call("index", "export", one, "--format", "qdrant", "--to", tmp_path / name) for one, name in
                ((url, "there"), (folder, "here"))]  # fmt: skip
    assert [one.code for one in exported] == [0, 0]
    names = sorted(path.name for path in (tmp_path / "here").iterdir())
    assert [(tmp_path / "there" / name).read_bytes() for name in names] == [
        (tmp_path / "here" / name).read_bytes() for name in names
    ]
    assert update_index(url, str(run)).startswith("Nothing changed.")


@pytest.mark.slow
def test_an_index_of_a_file_on_s3_follows_its_content(tmp_path: Path, bucket: str) -> None:
    """The second file has the size of the first; one vector in the middle is another."""
    url, out, vectors = f"{bucket}/vectors.parquet", str(tmp_path / "index"), clustered(200)
    settings = settings_in(tmp_path) | {"index": {"kind": "flat", "tuning_queries": 20}}
    facts = []
    for turned in (False, False, True):
        mine = vectors.copy()
        mine[100] *= -1 if turned else 1
        data = Path(put_vectors(tmp_path / "v.parquet", IDS[:200], mine)).read_bytes()
        Store(bucket).write("vectors.parquet", data)
        build_index(url, model_in(tmp_path).model, out, settings)
        with VectorSearcher(out) as searcher:
            facts.append((searcher.facts["content"], searcher.facts["texts"]))
            assert searcher.search(mine[100:101], 1).ids(0) == [IDS[100]]
    assert facts[0] == facts[1]
    assert facts[0][0] != facts[2][0]
    assert facts[0][1] != facts[2][1]
