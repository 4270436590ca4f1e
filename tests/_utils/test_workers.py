"""Worker processes leave Ctrl-C to the process that started them, from their first moment on."""

import subprocess
import sys

SCRIPT = """
import signal

from joblib import delayed

from nerve._utils.workers import worker_processes

if __name__ == "__main__":
    with worker_processes(2) as parallel:
        call = delayed(signal.pthread_sigmask)(signal.SIG_BLOCK, [])
        blocked = parallel([call, call])
    assert all(signal.SIGINT in signals for signals in blocked), blocked
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
"""


def test_ctrl_c_is_blocked_in_workers_of_a_new_program(tmp_path):
    """In a new program: helpers of joblib, whose start unblocks the signal, do not run yet."""
    (tmp_path / "program.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
