"""How good retrievers are by the labels: the audit of those that made a pool, and the measures of any system.

`measures.measured` counts a ranking against labels, `paired.compared` holds systems against one another; both take
arrays and tables, so that whoever trains an encoder can call them between two steps. The stages around them, in data
order: `asked` (who is asked, and what is right), `rankings` (what each system finds), `stage` (the measures),
`manual` (people's labels of pairs, and AUC), `online` (what the log itself says).
"""
