"""Serve an adapted encoder: search with it, check it, compare it with the live one, release it.

`run_search` searches a run's texts, `adapter_retriever` makes a retriever of an adapter, `adapter_check` verifies that
an adapter fits an index, `encoder_swap` compares result lists before and after, `release_gate` and `registry` release
adapters. `service`, `batching` and `mapped_texts` answer search requests.
"""
