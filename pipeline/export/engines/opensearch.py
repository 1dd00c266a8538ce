"""OpenSearch: the body of the request that makes an index, and bodies of `_bulk`.

Source: OpenSearch's documentation of the field type `knn_vector`, and of the bulk API.
"""

from __future__ import annotations

from darklode.pipeline.export.vector_engine import Definition, Engine


def definition(dimensions: int) -> tuple[str, Definition]:
    """Index settings and mapping. Vectors have length 1, so the inner product is the cosine."""
    method = {"name": "hnsw", "engine": "faiss", "space_type": "innerproduct"}
    keyword, words = {"type": "keyword"}, {"type": "text"}
    properties: Definition = {
        "text_id": keyword,
        "doc_id": keyword,
        "semantic_id": keyword,
        "title": words,
        "heading": words,
        "text": words,
        "vector": {"type": "knn_vector", "dimension": dimensions, "method": method},
    }
    mappings = {"dynamic": "strict", "properties": properties}
    return "index.json", {"settings": {"index": {"knn": True}}, "mappings": mappings}


LOADING_GUIDE = """
```sh
curl -X PUT "$URL/texts" -H "Content-Type: application/json" --data-binary @index.json
for file in points-*.ndjson; do
  curl -X POST "$URL/texts/_bulk" -H "Content-Type: application/x-ndjson" --data-binary "@$file"
done
```

Each reply of `_bulk` must have `"errors": false`. Query vectors must have length 1. `_id` is a UUID made of the text
id, so loading again replaces texts. `text_id` is the original id.
"""

OPENSEARCH = Engine(
    line="""
        concat(to_json({'index': {'_id': id}}), chr(10), to_json({
            'text_id': text_id, 'doc_id': doc_id, 'semantic_id': semantic_id, 'title': title, 'heading': heading,
            'text': text, 'vector': vector
        }))
    """,
    before=b"",
    between=b"\n",
    after=b"\n",
    ending="ndjson",
    definition=definition,
    loading=LOADING_GUIDE,
)
