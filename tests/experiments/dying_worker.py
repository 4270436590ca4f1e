"""What the workers of `test_killed_worker` do: a real run, a run that is said to be done, or a kill."""

import json
import os
import signal
from pathlib import Path

DOOMED, REAL = "doomed", "real"


def work_or_die(folder, run_id, threads, cards):
    """Do a real run, say that another is done, or die as often as the file that is named after the run says."""
    deaths = Path(folder, f"{DOOMED}-{run_id}")
    if deaths.is_file() and (left := int(deaths.read_text())):
        deaths.write_text(str(left - 1))
        os.kill(os.getpid(), signal.SIGKILL)
    if Path(folder, f"{REAL}-{run_id}").is_file():
        from nerve.experiments.launch import run_by_id

        run_by_id(folder, run_id, threads, cards)
    else:
        manifest = Path(folder, "runs", run_id, "manifest.json")
        manifest.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_text(json.dumps({"status": "done"}))
    return run_id, ""
