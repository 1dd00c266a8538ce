"""Sentences that ask for their own texts."""

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.data.inverse_cloze import inverse_cloze
from darklode.pipeline.train.data.sources import texts_of

from ..conftest import Adapted


@pytest.mark.slow
def test_each_sentence_is_of_the_text_that_it_asks_for_and_no_label_is_left(adapted: Adapted) -> None:
    tables = adapted.out.tables()
    frozen = adapted.base.open(tables)
    task = Task.from_tables(tables, frozen, same_document=False)
    found = inverse_cloze(adapted.base, frozen)(task, 3)
    assert len(found.train) == len(found.pair_query) == len(task.train), "as many as without"
    rows = np.array([np.flatnonzero(frozen.position_of == one)[0] for one in found.pair_position])
    words = texts_of(adapted.base.sources, frozen.texts.take(pa.array(rows)))["text"].to_pylist()
    assert all(sentence in text for sentence, text in zip(found.train.texts, words, strict=True))
    assert len(set(rows.tolist())) == len(rows)
    np.testing.assert_array_equal(found.train.vectors, frozen.encode(found.train.texts))
    assert (len(found.non_relevant.keys), found.siblings, found.probabilities, found.train.labels.num_rows) == (
        0,
        None,
        None,
        0,
    )
    assert found.validation is task.validation
    assert inverse_cloze(adapted.base, frozen)(task, 3).train.texts == found.train.texts
    assert inverse_cloze(adapted.base, frozen)(task, 4).train.texts != found.train.texts
