"""Judge prompts as data: system text, few-shot examples, user template and version, one folder each."""
