"""Speed and memory, always as a ratio to a reference measured in the same run: machines are noisy."""

from pathlib import Path


def peak_memory() -> float:
    """GiB that this process has had at most; `ru_maxrss` would begin with what the process that started it had."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 2**20
