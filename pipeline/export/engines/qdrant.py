"""Qdrant: the body of the request that makes a collection, and bodies that upsert points.

Source: Qdrant's REST interface, `PUT /collections/{name}` and `PUT /collections/{name}/points`.
"""

from __future__ import annotations

from darklode.pipeline.export.vector_engine import Definition, Engine


def definition(dimensions: int) -> tuple[str, Definition]:
    """Collection parameters. Vectors have length 1: `Dot` is the cosine, without normalizing them again."""
    return "collection.json", {"vectors": {"size": dimensions, "distance": "Dot"}}


LOADING_GUIDE = """
```sh
curl -X PUT "$URL/collections/texts" -H "Content-Type: application/json" --data-binary @collection.json
for file in points-*.json; do
  curl -X PUT "$URL/collections/texts/points?wait=true" -H "Content-Type: application/json" --data-binary "@$file"
done
```

or by `qdrant-client`:

```python
import json
from pathlib import Path
from qdrant_client import QdrantClient
from qdrant_client.models import PointsList, VectorParams

client = QdrantClient(URL)
collection = json.loads(Path("collection.json").read_text())
client.create_collection("texts", vectors_config=VectorParams(**collection["vectors"]))
for file in sorted(Path().glob("points-*.json")):
    client.upsert("texts", PointsList.model_validate_json(file.read_bytes()).points)
```

Query vectors must have length 1. A point's id is a UUID made of the text id, because Qdrant accepts only UUIDs and
numbers; loading again replaces points. `text_id` in the payload is the original id.
"""

QDRANT = Engine(
    line="""
        to_json({'id': id, 'vector': vector, 'payload': {
            'text_id': text_id, 'doc_id': doc_id, 'semantic_id': semantic_id, 'title': title, 'heading': heading,
            'text': text
        }})
    """,
    before=b'{"points": [\n',
    between=b",\n",
    after=b"\n]}\n",
    ending="json",
    definition=definition,
    loading=LOADING_GUIDE,
)
