"""Model swap: search an index of one encoder with the queries of another, through a map learned between their spaces."""
