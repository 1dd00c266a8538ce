"""Evaluation of retrievers: the audit of the pool's retrievers, and measures of any system.

`measures.compute_measures` scores rankings against labels, `paired.compare_paired` compares systems; both take arrays
and tables, so they can be called between two training steps. The stages in data order: `test_queries` (queries and
labels), `rankings`, `stage` (the measures); `pair_labels`, `pair_scores` and `auc` (AUC on human labels of pairs);
`online_verdicts` and `online_metrics` (measures of the log itself).
"""
