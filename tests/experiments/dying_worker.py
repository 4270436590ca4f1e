"""Workers of `test_killed_worker`: they do a real run, record one as done, or are killed."""

import json
import os
import signal
from pathlib import Path

DOOMED, REAL = "doomed", "real"


def work_or_die(folder, run_id, threads, cards):
    """Do a real run, record another as done, or die as often as the file of the run says."""
    deaths = Path(folder, f"{DOOMED}-{run_id}")
    n_left = int(deaths.read_text()) if deaths.is_file() else 0
    if n_left:
        deaths.write_text(str(n_left - 1))
        os.kill(os.getpid(), signal.SIGKILL)
    if Path(folder, f"{REAL}-{run_id}").is_file():
        from nerve.experiments.launch import run_by_id

        run_by_id(folder, run_id, threads, cards)
    else:
        manifest = Path(folder, "runs", run_id, "manifest.json")
        manifest.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_text(json.dumps({"status": "done"}))
    return run_id, ""
