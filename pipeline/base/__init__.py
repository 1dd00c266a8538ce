"""Shared parts of the pipeline.

- Runs: `artifacts` (reads and writes tables), `duckdb_views`, `sharding` (work on several machines), `relations`.
- Models: `remote` (the client of model servers), `memory` (keyed stores across runs), `models` (local models).
- Texts: `chunk_texts`, `document_view`, `terms`, `segmentation`, `markdown`, `highlighting`, `query_normalization`,
  `near_duplicates`, `personal_data` with `phone_numbers` and `secret_patterns`.
- Prompts: `prompts`, `chat_prompt`, `quoting`.
- Statistics: `agreement`, `bootstrap`, `doubtful_labels`.
- Others: `errors` (the only error tree), `card` (dataset cards), `kinds` (typed settings of kinds).
"""
