"""The command and the files it leaves."""

import pytest
from typer.testing import CliRunner

from nerve import NERVE, NerveError
from nerve._utils.files import read_json, read_tsv
from nerve.cli import app
from nerve.interpret import interpret_to

pytestmark = pytest.mark.xdist_group("interpret")  # they share cohort and encoders


@pytest.fixture(scope="module")
def folders(tmp_path_factory, cohort, encoders):
    """A cohort and two runs on disk."""
    folder = tmp_path_factory.mktemp("interpret")
    cohort.save(folder / "cohort")
    for number, encoder in enumerate(encoders):
        encoder.save(folder / f"run{number}")
    return folder


@pytest.mark.slow
def test_the_command_writes_every_table_with_its_stability(folders):
    out = folders / "out"
    words = [
        str(folders / "run0"),
        str(folders / "run1"),
        str(folders / "cohort"),
        "--targets",
        "p_factor",
    ]
    options = [
        "--out",
        str(out),
        "--n-folds",
        "3",
        "--n-bootstrap",
        "20",
        "--pooling",
        "tokens",
        "--device",
        "cpu",
    ]
    result = CliRunner().invoke(app, ["interpret", *words, *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "p_factor" in result.output
    names = {path.name for path in (out / "interpretation").iterdir()}
    expected = {"network_weights", "attention", "attention_pairs", "importance"}
    assert names == {f"{name}.tsv" for name in expected} | {"stability.json", ".nerve"}
    for name in expected:
        table = read_tsv(out / "interpretation" / f"{name}.tsv")
        assert table["stability"].between(-1, 1).all(), name
        assert (table["n_seeds"] == 2).all()
        assert not any("sub-" in str(value) for value in table.iloc[0])
    agreement = read_json(out / "interpretation" / "stability.json")
    assert agreement["seeds"] == [0, 1]
    assert set(agreement["occlusion"]) == {"p_factor"}
    assert agreement["attention"]["rollout"] is not None


@pytest.mark.slow
def test_without_targets_and_with_one_run_the_run_itself_is_described(folders):
    result = CliRunner().invoke(
        app, ["interpret", str(folders / "run0"), str(folders / "cohort"), "--device", "cpu"]
    )
    assert result.exit_code == 0, result.output
    written = folders / "run0" / "interpretation"
    assert not (written / "importance.tsv").exists()
    assert read_json(written / "stability.json")["network_weights"]["all"] is None


@pytest.mark.slow
def test_runs_that_cannot_be_compared_are_refused(tmp_path, cohort, encoders):
    other = NERVE.from_preset(
        "small", patching="grid16", dim=16, depth=1, epochs=1, device="cpu", heads=2
    )
    with pytest.raises(NerveError, match="differ only in the seed"):
        interpret_to(tmp_path, [encoders[0], other.fit(cohort)], cohort)
    with pytest.raises(NerveError, match="no encoder"):
        interpret_to(tmp_path, [], cohort)
