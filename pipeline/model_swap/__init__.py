"""Model swap: search the index of one encoder with the queries of another, through a learned map."""
