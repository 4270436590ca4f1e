"""Models for Brainmarks: what its wrapper is given is what the methods give; the whole of it where it is installed."""

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from tests.promises.documents import ROOT
from torch.utils.data import default_collate

from nerve import NERVE, Cohort, load_parcellation
from nerve._utils.errors import NerveError, NerveWarning
from nerve.core.views import TangentView
from nerve.methods.brainmarks import (
    REGIONS,
    TangentModel,
    connectivity_of,
    run_model,
    tangent_model,
)
from nerve.methods.shrunk import ShrunkTangentSpace

N_SCANS = 14


@pytest.fixture(scope="module")
def samples():
    """Scans as Brainmarks' data sets give them, of different lengths."""
    rng = np.random.default_rng(0)
    scans = []
    for scan in range(N_SCANS):
        shared = rng.normal(size=(40 + scan, 1))
        series = rng.normal(size=(40 + scan, 400)) + 0.5 * shared
        sample = {
            "bold": torch.from_numpy(series).half(),
            "mean": torch.zeros(1, 400),
            "std": torch.ones(1, 400),
            "tr": 2.0,
            "target": scan % 2,
        }
        scans.append(sample)
    return scans


@pytest.fixture(scope="module")
def fc(samples):
    """By numpy: the second opinion on FC."""
    return np.stack([np.corrcoef(sample["bold"].double().numpy().T) for sample in samples])


def batch_of(transform, samples):
    return default_collate([transform(sample) for sample in samples])


def test_connectivity_is_pearson_and_zero_where_there_is_no_signal(samples, fc):
    np.testing.assert_allclose(connectivity_of(samples[0]), fc[0], atol=1e-6)
    silent = samples[0]["bold"].clone()
    silent[:, 7] = 0.0
    expected = fc[0].copy()
    expected[7, :] = expected[:, 7] = 0.0
    expected[7, 7] = 1.0
    np.testing.assert_allclose(connectivity_of({"bold": silent}), expected, atol=1e-6)


def test_another_space_is_refused():
    with pytest.raises(NerveError, match=r"bold: it has shape \(40, 450\), expected \(volumes"):
        connectivity_of({"bold": torch.randn(40, 450)})


@pytest.mark.slow
def test_tangent_features_are_those_of_the_training_split(samples, fc):
    transform, model = tangent_model(shrunk=False)
    transform.fit(samples[:10])
    cls, registers, patches = model(batch_of(transform, samples[10:]))
    matrices = TangentView().fit(fc[:10]).apply(fc[10:])
    np.testing.assert_allclose(cls[:, 0], matrices[:, *np.triu_indices(400)], atol=1e-4)
    np.testing.assert_allclose(patches, matrices, atol=1e-4)
    assert registers is None


@pytest.mark.slow
def test_shrunk_features_are_those_of_the_training_split(samples, fc):
    transform, model = tangent_model(shrunk=True)
    transform.fit(samples[:10])
    cls, registers, patches = model(batch_of(transform, samples[10:]))
    expected = ShrunkTangentSpace().fit(fc[:10]).transform(fc[10:])
    np.testing.assert_allclose(cls[:, 0], expected, atol=1e-4)
    assert registers is None
    assert patches is None


@pytest.mark.slow
def test_two_scans_are_not_shrunk_and_a_warning_says_so(samples):
    transform, _ = tangent_model(shrunk=True)
    with pytest.warns(NerveWarning, match="2 training scans, expected at least 3"):
        transform.fit(samples[:2])
    plain, _ = tangent_model(shrunk=False)
    plain.fit(samples[:2])
    torch.testing.assert_close(
        transform(samples[5])["nerve_input"], plain(samples[5])["nerve_input"]
    )


def test_features_before_fit_are_refused(samples):
    transform, _ = tangent_model(shrunk=False)
    with pytest.raises(NerveError, match="not fitted"):
        transform(samples[0])


def test_rows_of_the_matrix_are_found_again_from_its_triangle():
    matrix = torch.randn(2, 400, 400)
    matrix = matrix + matrix.transpose(1, 2)
    rows, columns = np.triu_indices(400)
    cls, _, patches = TangentModel()({"nerve_input": matrix[:, rows, columns]})
    assert torch.equal(patches, matrix)
    assert cls.shape == (2, 1, 80200)


# A run


@pytest.fixture(scope="module")
def run(fc, tmp_path_factory):
    """Trained on the same regions in the order of the 7 networks."""
    regions = load_parcellation("schaefer400-7")
    order = load_parcellation(REGIONS).reordering_to(regions)
    table = pd.DataFrame({"participant_id": [f"p{i}" for i in range(N_SCANS)]})
    cohort = Cohort(fc[:, order][:, :, order], table, regions, name="other order")
    settings = {"dim": 16, "epochs": 1, "n_components": 4, "device": "cpu", "seed": 0}
    encoder = NERVE.from_preset("small", **settings).fit(cohort)
    return encoder.save(tmp_path_factory.mktemp("run") / "run")


@pytest.mark.slow
def test_a_run_in_another_order_reads_regions_by_label(run, samples, fc):
    transform, model = run_model(run)
    cls, registers, patches = model(batch_of(transform, samples))
    table = pd.DataFrame({"participant_id": [f"p{i}" for i in range(N_SCANS)]})
    cohort = Cohort(fc, table, REGIONS, name="order of Brainmarks")
    encoder = NERVE.load(run, device="cpu")
    np.testing.assert_allclose(cls[:, 0], encoder.transform(cohort), atol=1e-3)
    expected = encoder.transform(cohort, pooling="cls")
    np.testing.assert_allclose(registers[:, 0], expected, atol=1e-3)
    np.testing.assert_allclose(patches, encoder.transform(cohort, pooling="tokens"), atol=1e-3)


@pytest.mark.slow
def test_half_precision_around_the_model_does_not_reach_it(run, samples):
    transform, model = run_model(run)
    batch = batch_of(transform, samples[:2])
    with torch.autocast("cpu", torch.bfloat16):
        cast = model(batch)
    for value, expected in zip(cast, model(batch), strict=True):
        assert torch.equal(value, expected)


def test_without_a_run_the_message_says_where_it_is_named():
    with pytest.raises(NerveError, match="NERVE_RUN"):
        run_model(None)


@pytest.mark.slow
def test_the_shipped_model_is_refused_with_what_to_train_instead():
    with pytest.raises(NerveError, match=r"nerve-small-419.*19 of the 419.*nerve pretrain"):
        run_model("nerve-small-419")


@pytest.mark.slow
def test_a_run_that_recentres_sites_is_refused(fc, tmp_path):
    table = pd.DataFrame(
        {"participant_id": [f"p{i}" for i in range(N_SCANS)], "site": ["a", "b"] * (N_SCANS // 2)}
    )
    settings = {"dim": 16, "epochs": 0, "n_components": 4, "device": "cpu", "recentre": "site"}
    encoder = NERVE.from_preset("small", **settings).fit(Cohort(fc, table, REGIONS))
    with pytest.raises(NerveError, match="recentre=site"):
        run_model(encoder.save(tmp_path / "run"))


# Brainmarks itself, where tools/brainmarks_environment.sh has installed it

ENVIRONMENT = Path(os.environ.get("NERVE_BRAINMARKS", ROOT / ".venv-brainmarks"))
PYTHON = ENVIRONMENT / "bin" / "python"
installed = pytest.mark.skipif(
    not PYTHON.exists(),
    reason=f"no environment at {ENVIRONMENT}: tools/brainmarks_environment.sh makes it "
    "(NERVE_BRAINMARKS names another place)",
)


def run_python(words, **variables):
    """The Python of Brainmarks' environment, with the source of this checkout."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    settings = {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "TEMPLATEFLOW_AUTOUPDATE": "off"}
    return subprocess.run(
        [PYTHON, *words],
        env=os.environ | settings | variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@installed
@pytest.mark.slow
def test_brainmarks_own_test_of_models_passes(run, tmp_path):
    names = ["nerve_run", "nerve_tangent", "nerve_shrunk"]
    variables = {"HOME": str(tmp_path), "NERVE_RUN": str(run)}
    done = run_python(["-m", "brainmarks.models.test_models", *names], **variables)
    assert re.search(r"\b6 passed", done.stdout), done.stdout + done.stderr
    assert "failed" not in done.stdout


@installed
@pytest.mark.slow
def test_its_logistic_evaluation_runs_from_series_to_a_table(tmp_path):
    settings = ["--participants", "60", "--volumes", "60", "--trials", "2"]
    models = ["--models", "nerve_shrunk,nerve_run"]
    words = ["-m", "studies.brainmarks", str(tmp_path / "out"), *settings, *models]
    done = run_python(words)
    assert done.returncode == 0, done.stdout + done.stderr
    table = (tmp_path / "out" / "table.md").read_text()
    rows = re.findall(r"\| `(\w+)` \| (\w+) \| ([\d.]+) ±", table)
    assert [(model, kind) for model, kind, _ in rows] == [
        ("nerve_shrunk", "cls"),
        ("nerve_run", "cls"),
        ("nerve_run", "reg"),
        ("nerve_run", "patch"),
    ]
    assert all(0 <= float(score) <= 1 for _, _, score in rows)
