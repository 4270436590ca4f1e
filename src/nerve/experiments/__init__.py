"""Experiments: many evaluations with a plan and a memory.

`config` (what an experiment file may say) → `plan` (its runs) → `launch` (they are done, on this
machine or by SLURM; `tasks` says what each computes, `run_store` where it is kept) → `collect`
(results from the runs that are done). `experiment` holds these together. `nerve.evaluate`, which
keeps no runs, is in `evaluate_in_memory`.
"""
