"""Experiments: many evaluations with a plan and a memory.

`config` (what an experiment file may say) → `plan` (its runs) → `launch` (does them, on this
machine or by SLURM) → `collect` (results from the runs that are done). `experiment` holds these
together. For one run, `tasks` says what it computes, `run_key` what determines it, and `run_store`
where it is kept. `nerve.evaluate`, which keeps no runs, is in `evaluate_in_memory`.
"""
