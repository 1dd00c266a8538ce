"""What several rooms need.

errors, artifacts (the one reader and writer of tables), views (tables for DuckDB), spread (work over machines);
remote (the one client of servers), memory (what is kept across runs by key), models (files, loading, devices);
corpora and terms (chunks as texts and as words), relations (SQL over values), raters (agreement), bootstrap
(intervals), card (dataset cards), kinds (a section as what it is), prompts,
personal_data (with phone_numbers and secret_patterns).
"""
