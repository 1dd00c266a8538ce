"""Search engines that vectors are exported to, one file per engine."""

from darklode.pipeline.export.engines.opensearch import OPENSEARCH
from darklode.pipeline.export.engines.qdrant import QDRANT

ENGINES = {"opensearch": OPENSEARCH, "qdrant": QDRANT}
