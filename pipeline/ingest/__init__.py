"""Read documents, query logs and search logs; no other package reads the user's files.

`documents`, `queries` and `logs` are the stages. `sources/` copies what is no local file to a snapshot. `files` lists
and chooses files, `readers/` parse them, `columns` and `column_hints` map columns to roles, `rows`, `timestamps` and
`log_rows` convert values, `log_partitions` groups a log by day, `rejects` records dropped rows. `input_check` and
`inspect` read only the beginning of a source.
"""
