"""Training labels that agree with a run's qrels, for runs that tests write themselves."""

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.doubtful_labels import LIKELIHOOD_SQL
from darklode.schemas.label_tables import TRAINING_LABELS
from helpers.runs import put

TRAINING_LABELS_SQL = """
    SELECT tenant, query_id, chunk_id, relevance, CAST({weight} AS DOUBLE) AS weight, source
    FROM qrels JOIN (FROM queries WHERE split <> 'test') USING (tenant, query_id) {verdicts}
    ORDER BY tenant, query_id, chunk_id
"""
VERDICTS_SQL = f"""
    LEFT JOIN (SELECT tenant, query_id, chunk_id, {LIKELIHOOD_SQL} AS likelihood FROM verdicts)
    USING (tenant, query_id, chunk_id)
"""


def put_training_labels(run: Run) -> None:
    """Write the qrels of train and validation as training labels, with the verdicts' probabilities as weights."""
    has_verdicts = "verdicts" in run.parts()
    parts = {"weight": "likelihood", "verdicts": VERDICTS_SQL} if has_verdicts else {"weight": "NULL", "verdicts": ""}
    rows: pa.Table = run.tables().sql(TRAINING_LABELS_SQL.format(**parts))
    put(run, TRAINING_LABELS.name, rows.cast(TRAINING_LABELS.schema))
