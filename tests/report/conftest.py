"""A complete made-up experiment, written once."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from folders import Made, line, write_folder
from painting import paint

from nerve.data.common_space import MeanPair
from nerve.data.quality.likeness import Likeness, Signature
from nerve.data.resampling import Resampling
from nerve.report.load import load_results
from nerve.report.page import write_report

EVIL = "<script>window.pwned=1</script>\"'>&amp;<img src=x onerror=window.pwned=2>\nnew line $\\frac{1}$"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """What reads a page with all of its figures waits until they are painted."""
    for item in items:
        if {"painted", "hostile_page"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def experiment(made_once):
    return made_once("experiment", write_folder)


@pytest.fixture(scope="session")
def results(experiment):
    mean = np.random.default_rng(0).uniform(-0.2, 0.8, 300).astype(np.float32)
    both = (Signature(scale * mean, 20, 0.2 * scale, 0.4, 0.9) for scale in (1, 1.8))
    like = Likeness(
        "group means correlate by 1.00", ("The entries of a matrix spread by 0.360.",), *both
    )
    resampling = Resampling.between("schaefer200-7", "schaefer100-7")
    matrices = [np.corrcoef(np.random.default_rng(1).normal(size=(n, 50))) for n in (200, 100)]
    pair = MeanPair(
        ("before: schaefer200-7", "after: schaefer100-7"),
        (matrices[0], matrices[1]),
        (resampling.source, resampling.target),
        "there and back, r = 0.910",
        resampling,
    )
    loaded = load_results(experiment)
    return replace(loaded, likeness={("NERVE", "alpha"): like}, mean_pairs=[pair])


@pytest.fixture(scope="session")
def painted(made_once, results):
    """Every figure painted once, on one page: report.html, and words.json with each word and the room around it."""
    return made_once("painted", lambda folder: paint(results, folder))


@pytest.fixture(scope="session")
def hostile(made_once):
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
    return made_once("hostile", lambda folder: write_folder(folder, made))


@pytest.fixture(scope="session")
def hostile_page(made_once, hostile):
    def write(folder):
        (
            hostile / "interpretation" / "network_weights.tsv"
        ).unlink()  # no text of a user's is in its figures
        write_report(hostile).rename(folder / "report.html")

    return made_once("hostile-page", write) / "report.html"
