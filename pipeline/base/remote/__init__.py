"""The client of remote model servers: retries, replicas, adaptive concurrency, budgets.

Calls are sent with aiohttp, not with the openai SDK: against the same local server, one process sends 300 to 500
requests/s with the SDK, and more than 4,000 with aiohttp. Retries are part of this client: a budget is reserved before
each attempt and settled after it, also if the attempt fails or is cancelled, and a failure also counts for the server's
health and concurrency limit. The SDK is used for the batch service only.
"""
