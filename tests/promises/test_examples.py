"""Every example of the gallery runs, in an empty folder and namespace, with one epoch and few participants."""

import warnings

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from tests.promises.documents import ROOT, in_one_epoch

from nerve._utils.errors import NerveWarning

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = compile(in_one_epoch(path.read_text(encoding="utf-8")), path, "exec")
    with mpl.rc_context({"backend": "Agg"}), warnings.catch_warnings():
        warnings.simplefilter("ignore", NerveWarning)
        exec(code, {"__name__": "__main__"})
    plt.close("all")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_has_a_title_cells_and_only_simulated_data(path):
    text = path.read_text(encoding="utf-8")
    title, rule = text.splitlines()[1:3]
    assert set(rule) == {"="}
    assert len(rule) >= len(title)
    assert text.count("# %%") >= 3
    assert "simulate_cohort" in text
    assert path.name.startswith("plot_"), "sphinx-gallery runs files called plot_… only"
