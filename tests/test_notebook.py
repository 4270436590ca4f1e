"""A notebook in a real Jupyter kernel: what cells show of a cohort and an estimator, and progress of a training."""

import importlib.util
import re

import pytest

pytestmark = pytest.mark.slow
CELLS = (
    """
import warnings
import numpy as np, pandas as pd, nerve, nerve._utils.progress
nerve._utils.progress.SECONDS_BETWEEN_LINES = 0  # lines also of work that is short
rng = np.random.default_rng(0)
fc = np.stack([np.corrcoef(x) for x in rng.normal(size=(24, 32, 60))])
regions = pd.DataFrame({"label": [f"r{i}" for i in range(32)], "network": ["A"] * 16 + ["<b>B</b>"] * 16})
table = pd.DataFrame({"participant_id": [f"secret{i}" for i in range(24)], "age": rng.uniform(8, 20, 24)})
cohort = nerve.Cohort(fc, table, nerve.Parcellation.from_table(regions, name="two"), name="tiny")
encoder = nerve.NERVE.from_preset("small", dim=16, epochs=4, n_components=8, device="cpu")
""",
    "cohort",
    "encoder",
    "encoder.fit(cohort)",
    "encoder.transform(cohort).shape",
)


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    folder = str(tmp_path_factory.mktemp("notebook"))
    nbclient.NotebookClient(
        notebook, timeout=1800, resources={"metadata": {"path": folder}}
    ).execute()
    return [cell.outputs for cell in notebook.cells]


def html_of(outputs):
    return next(one["data"]["text/html"] for one in outputs if "text/html" in one.get("data", {}))


def test_a_cohort_shows_its_most_important_numbers_first(executed):
    shown = html_of(executed[1])
    for fact in ("tiny", "24", "32", "two"):
        assert fact in shown
    assert "secret" not in shown
    assert "<b>B" not in shown


def test_an_estimator_shows_what_it_was_fitted_on(executed):
    assert "32 in 2 networks" not in html_of(executed[2])
    fitted = html_of(executed[3])
    assert "32 in 2 networks" in fitted
    assert "tiny (24)" in fitted


def test_a_cell_shows_progress_and_gives_its_value(executed):
    shown = "".join(one["text"] for one in executed[3] if one.get("name") == "stderr")
    has_widgets = importlib.util.find_spec("ipywidgets") is not None  # a bar, which the page draws
    assert has_widgets or re.search(r"NERVE: \d+ of \d+ steps", shown), shown
    assert "\x1b" not in shown  # no codes of a terminal
    assert executed[4][-1]["data"]["text/plain"] == "(24, 8)"
