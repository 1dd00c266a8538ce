"""From what was read to what is searched (DevRev-Search, 3.1 and 3.2).

Three stages are the way in: `clean.clean` drops queries that teach nothing, `chunk.chunk` cuts documents into the unit
that is retrieved and judged, `split.split` gives every query its split.
"""
