"""Change an LLM judge's prompt by what people labelled, and compare it with today's on other queries."""
