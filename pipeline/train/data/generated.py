"""Queries of `darklode generate` as training data: each query's positive is the text it was generated from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.train.data.dataset import QuerySet, Task
from darklode.schemas.laws import OWN_SOURCES, LawSettings

READS = ("triplets", "chunks")

TRAINING_QUERIES_SQL = """
    SELECT DISTINCT t.query_id, t.query, c.content_hash
    FROM triplets t JOIN chunks c ON c.tenant = t.tenant AND c.chunk_id = t.positive_id
    WHERE t.tenant = $1 AND t.split = 'train' ORDER BY t.query_id
"""


@dataclass(frozen=True)
class GeneratedQueries:
    """A folder of generated queries.

    Attributes:
        run: the folder.
    """

    run: Run

    def content(self) -> str:
        """Fingerprint of everything that is read.

        Raises:
            ArtifactError: the folder is not finished.
        """
        tables = self.run.tables(*READS)
        return " ".join(tables.content(name) for name in READS)

    def training_task(self, task: Task, _seed: int) -> Task:
        """The task with these queries only. Texts are matched by content, so they may come from another run.

        Raises:
            ArtifactError: no query belongs to a text of the task.
        """
        texts = task.frozen.texts
        queries = self.run.tables(*READS).sql(TRAINING_QUERIES_SQL, [texts["tenant"][0].as_py()]).combine_chunks()
        rows = pc.index_in(queries["content_hash"], texts["content_hash"].combine_chunks())
        queries = queries.filter(pc.is_valid(rows))
        text_rows = rows.drop_null().to_numpy().astype(np.int64)
        if not queries.num_rows:
            raise ArtifactError(f"{self.run.store.url} contains no query for a text of the runs")
        query_texts = queries["query"].to_pylist()
        ids = queries["query_id"].combine_chunks().cast(pa.string())
        index = texts["index"].to_numpy()[text_rows]
        train = QuerySet(ids, task.frozen.encode(query_texts), index, task.train.labels.slice(0, 0), query_texts)
        return replace(task, train=train).from_training_pairs(
            np.arange(len(query_texts)), task.frozen.position_of[text_rows]
        )


def generated_in(settings: LawSettings) -> dict[str, GeneratedQueries]:
    """The label sources of a grid that are folders of generated queries."""
    return {name: GeneratedQueries(Run(name)) for name in settings.label_sources if name not in OWN_SOURCES}
