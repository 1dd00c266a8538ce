"""Run all benchmarks, one after another."""

import runpy

for name in ("quality", "judge_quality", "adaptive", "bm25", "encoding", "dense", "gpu_pooling", "cost"):
    runpy.run_module(f"benchmarks.{name}", run_name="__main__")
