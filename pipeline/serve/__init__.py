"""What a search team does with an adapted encoder: search with it, check it, look at what it changes, release it.

`index` (a run's texts as they are searched), `adapted` (an adapter as a retriever), `check`, `swap`, `registry`.
"""
