"""Run all benchmarks, one after another."""

import runpy

for name in ("quality", "judge_quality", "bm25", "encoding", "dense", "gpu_pooling", "judging", "cost"):
    runpy.run_module(f"benchmarks.{name}", run_name="__main__")
