"""The stages and the parts they use: plain Python that knows nothing of Prefect.

A map of the house. Stages meet in tables only; `schemas` describes each table, `base.artifacts` reads and writes them.

    ingest     the user's files → documents, raw_queries, impressions (search logs); what cannot be read → rejects
    prepare    documents → chunks; raw_queries → cleaned_queries → queries, each in a split
    retrieve   queries and chunks → rankings, the lists of every retriever → pool, the pairs to judge
    judge      pool → verdicts → qrels; held against human labels before → calibration
    mine       impressions → click evidence, importances of terms, associations between queries → mined_pairs
    triplets   qrels or mined_pairs → triplets; a later period of the log → a test set
    evaluate   rankings and qrels → what each retriever finds, and what the pool loses without it
    validate   verdicts → a sample for reviewers → how far the judge can be trusted → the release gate
    report     the run → page, dataset card, funnel, differences of two runs
    export     the run → the formats of other tools, one file a format
    base       what several rooms need: errors, artifacts, remote servers, stores, models, terms, raters, prompts

Imports run down only, and rooms of one line never import one another: report, export → evaluate, validate, triplets →
mine → judge → ingest, prepare → retrieve → base → schemas. Each room's docstring names its way in.
"""
