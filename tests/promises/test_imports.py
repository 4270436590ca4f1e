"""What is imported when: a new process does one thing after another, and says what it has loaded."""

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
    "program": "import nerve.__main__",
    "torch": "import torch",
}
WATCHED = ("torch",)
RUN = """
import json, os, sys
stages, watched = json.loads(sys.argv[1]), json.loads(sys.argv[2])
before = dict(os.environ)
import nerve
found = {"environment": [name for name in os.environ if os.environ[name] != before.get(name)]}
for stage, code in stages.items():
    exec(code)
    found[stage] = [name for name in watched if name in sys.modules]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def after():
    """{stage: what was loaded after it}, and the variables that `import nerve` has set."""
    decided = (*cores.WAITING, *cores.THREADS, "OPENBLAS_THREAD_TIMEOUT")
    environment = {name: value for name, value in os.environ.items() if name not in decided}
    command = [sys.executable, "-c", RUN, json.dumps(STAGES), json.dumps(WATCHED)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {stage: set(names) for stage, names in json.loads(done.stdout).items()}


def test_evaluation_and_reports_need_no_torch(after):
    assert after["evaluation"] == after["report"] == set()
    assert after["torch"] == {"torch"}


def test_importing_nerve_sets_no_variables(after):
    assert after["environment"] == set()
