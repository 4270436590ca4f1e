"""Every example of the gallery runs, as people would run it: in a process of its own."""

import os
import subprocess
import sys

import pytest
from tests.promises.documents import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, tmp_path):
    environment = os.environ | {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "MPLCONFIGDIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, path], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_has_a_title_cells_and_only_simulated_data(path):
    text = path.read_text(encoding="utf-8")
    title, rule = text.splitlines()[1:3]
    assert set(rule) == {"="}
    assert len(rule) >= len(title)
    assert text.count("# %%") >= 3
    assert "simulate_cohort" in text
    assert path.name.startswith("plot_"), "sphinx-gallery runs files called plot_… only"
