"""Run all benchmarks, one after another."""

import contextlib
import runpy

NAMES = """
    quality neural_quality judge_quality local_judges learned_judge system_ranking bm25 encoding dense gpu_pooling
    judging adaptive adaptive_queries association lending clicks paper_mining splits nights day_gate
    year_of_nights review browse cost cleaning million recall_interval keyed_store evaluating damage adapt adapt_compare
    head_trainer tenants encoder_trainer towers tower_starts adapt_memory laws laws_towers joint_law next_batch
    generated_slopes serving serving_http stage_one stage_one_ablation tower_rows starts scaling packing streaming
    false_releases false_differences
    many_files
""".split()

for name in NAMES:
    with contextlib.suppress(SystemExit):  # a benchmark whose collection is missing says so and ends
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")
