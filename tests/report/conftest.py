"""A complete made-up experiment, written once."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from folders import Made, line, write_folder

from nerve.report.load import load_results

EVIL = "<script>window.pwned=1</script>\"'>&amp;<img src=x onerror=window.pwned=2>\nnew line $\\frac{1}$"


@pytest.fixture(scope="session")
def experiment(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("experiment"))


@pytest.fixture(scope="session")
def results(experiment):
    return load_results(experiment)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    """Everything that a user can name is an attempt to break the page."""
    swept = [line(f"b{i}", "nerve", "y" * 300, "self-supervised", variant=f"a={EVIL}{i}", settings={EVIL: i})
             for i in range(2)]  # fmt: skip
    made = Made(
        cohorts={f"../../{EVIL} cohort": 24},
        targets=[f"{EVIL} target", "x" * 400],
        rows=[*line("a", "raw", f"{EVIL} Raw", "reference"), *swept[0], *swept[1]],
        title=EVIL + "z" * 300,
        ids=EVIL.replace("{", "{{").replace("}", "}}") + "{i}",
        warning=EVIL,
        stored=False,
    )
    return write_folder(tmp_path_factory.mktemp("hostile"), made)
