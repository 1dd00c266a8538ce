"""The client of remote model servers: retries, replicas, adaptive concurrency, budgets.

Not the openai SDK with tenacity and aiolimiter: a budget must be reserved before each attempt and settled after it,
also when an attempt fails or is cancelled; a failure counts for a replica and its concurrency limit, not for one call;
and the SDK sends at most 500 requests/s per process, aiohttp 4,000. The SDK is used for the batch service, where none
of this matters.
"""
