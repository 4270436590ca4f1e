"""A whole comparison from one file: plan (config → runs), run, launch (local, SLURM), store (manifest, resume)."""
