"""Reading documents and query logs, whatever they are kept in: the only stage that sees the user's own files."""

from pipeline.ingest.documents import INGEST_DOCUMENTS, ingest_documents
from pipeline.ingest.files import source_fingerprint
from pipeline.ingest.queries import INGEST_QUERIES, ingest_queries

__all__ = ["INGEST_DOCUMENTS", "INGEST_QUERIES", "ingest_documents", "ingest_queries", "source_fingerprint"]
