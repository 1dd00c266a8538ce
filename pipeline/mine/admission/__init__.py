"""Which days of the log may be learned from: what each was like, what is implausible of it, what somebody decided.

In data order: `figures`, `measures`, `plausible`, `stage`; `decisions` are people's, and `admitted` is what the other
stages ask.
"""
