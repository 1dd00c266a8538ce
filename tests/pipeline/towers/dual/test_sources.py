"""Topics stand between title and headings, and the hash is of what is read."""

import pyarrow.compute as pc

from darklode.pipeline.base.chunk_texts import view
from darklode.pipeline.train.data.sources import TrainingSource
from helpers.adapted import TENANT
from helpers.dual import TOPICAL

from .conftest import Trained


def test_a_topic_is_read_and_hashed_and_all_else_stays(both: Trained) -> None:
    topical = both.base.sources[0]
    plain = TrainingSource(topical.run, 0, mined=False, text_characters=100)
    (rows,), (before,) = list(topical.texts(TENANT)), list(plain.texts(TENANT))
    assert rows.schema == before.schema
    assert rows["chunk_id"] == before["chunk_id"]
    changed = pc.not_equal(rows["content_hash"], before["content_hash"])
    assert rows.filter(changed)["doc_id"].to_pylist() == ["test-005-0", TOPICAL]
    said, plainly = (view(one.filter(changed)).to_pylist() for one in (rows, before))
    for with_topic, without in zip(said, plainly, strict=True):
        title, _, text = without.partition("\n")
        assert with_topic == f"{title}\na subject\n{text}"
    ids = rows["chunk_id"].to_pylist()
    assert topical.passage_rows(TENANT, ids)["content_hash"] == rows["content_hash"]
    assert topical.content() != plain.content()
