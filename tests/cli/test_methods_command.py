"""`nerve methods` names every method with what it needs."""

import io

import pandas as pd
import pytest
from typer.testing import CliRunner

from nerve.cli import app
from nerve.methods import METHODS

pytestmark = pytest.mark.slow  # parameters are counted on a device of torch whose import takes long


def test_every_method_is_listed_with_its_needs():
    result = CliRunner().invoke(app, ["methods"])
    assert result.exit_code == 0
    for name in METHODS:
        assert f"\n{name} " in f"\n{result.output}"
    assert "gate         GATE: needs time series; learns without labels" in result.output
    assert "accepts any measure\n" in result.output
    assert "accepts Pearson correlations (r) or partial correlations\n" in result.output
    assert "3,403,712 parameters (paper)\n" in result.output
    assert "parameters (default, shrunk view)\n" in result.output


def test_the_table_counts_parameters_at_400_regions():
    result = CliRunner().invoke(app, ["methods", "--tsv"])
    table = pd.read_csv(io.StringIO(result.output), sep="\t").set_index(["method", "preset"])
    assert list(table.index.unique("method")) == list(METHODS)
    assert table.loc[("nerve", "paper"), "parameters"] == 3_403_712
    assert table.loc[("nerve", "default"), "view"] == "shrunk"
    assert table.loc[("brainnettf", "paper"), "parameters"] == 13_545_257
    assert set(table[table["role"] == "supervised"].index.unique("method")) == {
        "finetune",
        "brainnetcnn",
        "braingnn",
        "brainnettf",
    }
