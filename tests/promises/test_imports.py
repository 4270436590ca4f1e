"""What is imported when: a fresh process does one thing after another, and says after each what it has loaded."""

import json
import os
import subprocess
import sys

import pytest

from nerve._utils import cores

pytestmark = pytest.mark.slow
STAGES = {
    "evaluation": "import nerve.evaluation",
    "report": "import nerve.report.page, nerve.report.plot",
    "threads": "import torch; said = torch.get_num_threads()",
}
WATCHED = ("torch",)
RUN = """
import json, sys
stages, watched = json.loads(sys.argv[1]), json.loads(sys.argv[2])
found, names = {}, {}
for stage, code in stages.items():
    exec(code, names)
    found[stage] = [name for name in watched if name in sys.modules], names.get("said")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def after():
    """{stage: what was loaded after it, what it said}; the process is one of a SLURM job with one CPU."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in (*cores.WAITING, *cores.THREADS)
    }
    command = [sys.executable, "-c", RUN, json.dumps(STAGES), json.dumps(WATCHED)]
    done = subprocess.run(
        command, env=kept | {"SLURM_CPUS_PER_TASK": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return {stage: (set(loaded), said) for stage, (loaded, said) in json.loads(done.stdout).items()}


def test_evaluation_and_reports_need_no_torch(after):
    assert after["evaluation"][0] == after["report"][0] == set()
    assert "torch" in after["threads"][0]


@pytest.mark.skipif(cores._seen_by_libraries() < 2, reason="one core: there is nothing to limit")
def test_slurm_decides_how_many_threads_torch_starts(after):
    assert after["threads"][1] == 1
