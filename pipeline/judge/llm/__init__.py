"""A language model behind OpenAI-compatible servers, as a judge."""
