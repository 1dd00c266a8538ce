"""Reading documents, query logs and search logs: the only stages that see the user's own files."""

from pipeline.ingest.documents import INGEST_DOCUMENTS, ingest_documents
from pipeline.ingest.files import source_fingerprint
from pipeline.ingest.logs import INGEST_LOGS, ingest_logs, log_sources
from pipeline.ingest.queries import INGEST_QUERIES, ingest_queries

__all__ = [
    "INGEST_DOCUMENTS",
    "INGEST_LOGS",
    "INGEST_QUERIES",
    "ingest_documents",
    "ingest_logs",
    "ingest_queries",
    "log_sources",
    "source_fingerprint",
]
