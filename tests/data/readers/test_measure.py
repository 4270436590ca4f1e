"""What matrices measure is said, kept, and decides what may be done with them."""

import numpy as np
import pandas as pd
import pytest
from tests.data.readers.write_formats import random_fc, random_series
from typer.testing import CliRunner

import nerve
from nerve._utils.errors import NerveError
from nerve.cli import app
from nerve.data.connectivity import STATED_MEASURES
from nerve.data.quality import check_cohort
from nerve.data.readers import ingest, preview, read_cohort
from nerve.methods import method_class

REGIONS = nerve.load_parcellation("desikan68")
N = REGIONS.n_regions


def counts(seed: int) -> np.ndarray:
    """Streamline counts: whole numbers, many of them zero, with counts within regions on the diagonal."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.poisson(rng.gamma(0.3, 300, size=(N, N))) + rng.integers(0, 2, (N, N)))
    return upper + np.triu(upper, 1).T


def write_all(folder, make, n=4, ending=".csv"):
    """One text file per participant; returns what was written."""
    folder.mkdir()
    matrices = [make(seed) for seed in range(n)]
    for seed, matrix in enumerate(matrices):
        np.savetxt(folder / f"sub-{seed:02d}{ending}", matrix, delimiter=",")
    return np.stack(matrices)


def partial(seed):
    precision = np.linalg.inv(random_fc(N, seed))
    scale = np.sqrt(precision.diagonal())
    matrix = -precision / np.outer(scale, scale)
    np.fill_diagonal(matrix, 0.0)  # as FSLNets leaves it
    return matrix


def scaled(seed):
    deviation = np.random.default_rng(seed).uniform(5, 50, N)
    return random_fc(N, seed) * np.outer(deviation, deviation)


MAKERS = {
    "pearson": lambda seed: random_fc(N, seed),
    "partial": partial,
    "covariance": scaled,
    "coherence": lambda seed: random_fc(N, seed) ** 2,
    "mutual_information": lambda seed: -0.5 * np.log(1 - np.clip(random_fc(N, seed), -0.99, 0.99) ** 2),
    "streamlines": counts,
    "fractional_anisotropy": lambda seed: counts(seed) / counts(seed).max(),
    "other": lambda seed: scaled(seed) - 700,
}  # fmt: skip


def test_every_measure_that_can_be_named_is_tried_here():
    assert set(MAKERS) == set(STATED_MEASURES)


@pytest.mark.parametrize("measure", STATED_MEASURES)
def test_the_stated_measure_is_kept_with_its_values(tmp_path, measure):
    written = write_all(tmp_path / "in", MAKERS[measure])
    ingest(tmp_path / "in", tmp_path / "out", order=REGIONS, measure=measure)
    cohort = nerve.Cohort.load(tmp_path / "out")
    assert cohort.measure == measure
    expected = written.copy()
    if measure == "partial":
        expected[:, np.arange(N), np.arange(N)] = 1.0
    np.testing.assert_allclose(cohort.connectivity, expected, rtol=1e-5, atol=1e-5)


def test_the_measure_is_part_of_the_fingerprint(tmp_path):
    write_all(tmp_path / "in", MAKERS["coherence"])
    first = read_cohort(tmp_path / "in", order=REGIONS, measure="coherence")
    second = read_cohort(tmp_path / "in", order=REGIONS, measure="other")
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize(
    ("words", "measure"),
    [
        ("mutual information", "mutual_information"),
        ("streamline count", "streamlines"),
        ("fractional anisotropy", "fractional_anisotropy"),
        ("FA", "fractional_anisotropy"),
        ("Pearson", "pearson"),
    ],
)
def test_measures_are_known_by_their_usual_words(tmp_path, words, measure):
    write_all(tmp_path / "in", MAKERS[measure], n=2)
    assert read_cohort(tmp_path / "in", order=REGIONS, measure=words).measure == measure


def test_unknown_measures_are_refused_with_the_list(tmp_path):
    write_all(tmp_path / "in", counts, n=1)
    with pytest.raises(NerveError, match="measure is 'tractlen', expected one of 'pearson'"):
        read_cohort(tmp_path / "in", order=REGIONS, measure="tractlen")
    with pytest.raises(NerveError, match='say values="z"'):
        read_cohort(tmp_path / "in", order=REGIONS, measure="fisher z")


def test_counts_without_a_measure_are_refused_and_the_remedy_works(tmp_path):
    written = write_all(tmp_path / "in", counts)
    command = ["ingest", str(tmp_path / "in"), str(tmp_path / "out"), "--order", "desikan68"]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 1
    assert "--measure NAME" in str(refused.exception)
    accepted = CliRunner().invoke(app, [*command, "--measure", "streamlines"])
    assert accepted.exit_code == 0, accepted.output
    cohort = nerve.Cohort.load(tmp_path / "out")
    np.testing.assert_array_equal(cohort.connectivity, written)


@pytest.mark.parametrize(
    ("maker", "measure", "sentence"),
    [
        ("streamlines", "fractional_anisotropy", r"expected mean fractional .* values in \[0, 1\]"),
        ("covariance", "coherence", r"expected coherences, that is values in \[0, 1\]"),
        ("other", "streamlines", "expected streamline counts, that is 0 or more"),
        ("other", "mutual_information", "expected mutual information, that is 0 or more"),
    ],
)
def test_values_that_a_measure_cannot_have_are_refused(tmp_path, maker, measure, sentence):
    write_all(tmp_path / "in", MAKERS[maker], n=2)
    with pytest.raises(NerveError, match=sentence):
        read_cohort(tmp_path / "in", order=REGIONS, measure=measure)
    assert read_cohort(tmp_path / "in", order=REGIONS, measure="other").measure == "other"


def test_z_and_a_measure_that_is_no_correlation_exclude_each_other(tmp_path):
    write_all(tmp_path / "in", counts, n=2)
    with pytest.raises(NerveError, match="values is z and measure is streamlines"):
        read_cohort(tmp_path / "in", order=REGIONS, measure="streamlines", values="z")


def test_time_series_are_no_matrices_of_a_measure(tmp_path):
    (tmp_path / "in").mkdir()
    for i in range(2):
        np.save(tmp_path / "in" / f"sub-{i}.npy", random_series(120, N, i))
    with pytest.raises(NerveError, match='it holds time series, of which kind="pearson" makes'):
        read_cohort(tmp_path / "in", order=REGIONS, measure="partial")
    assert read_cohort(tmp_path / "in", order=REGIONS, kind="partial").measure == "partial"


def test_partial_correlations_may_be_fisher_z(tmp_path):
    written = write_all(tmp_path / "in", lambda seed: np.arctanh(partial(seed)))
    cohort = read_cohort(tmp_path / "in", order=REGIONS, measure="partial", values="z")
    expected = np.tanh(written)
    expected[:, np.arange(N), np.arange(N)] = 1.0
    np.testing.assert_allclose(cohort.connectivity, expected, atol=1e-5)


def test_partial_correlations_are_not_proved_to_be_fisher_z_by_their_eigenvalues(tmp_path):
    """A partial matrix has eigenvalues below zero, as r and as z."""
    written = write_all(tmp_path / "in", partial)
    cohort = read_cohort(tmp_path / "in", order=REGIONS, measure="partial")
    off = ~np.eye(N, dtype=bool)
    np.testing.assert_allclose(cohort.connectivity[:, off], written[:, off], atol=1e-6)


@pytest.mark.parametrize("empty", ["0", "", "n/a"])
@pytest.mark.parametrize("keep", [np.triu, np.tril])
@pytest.mark.parametrize("mark", [",", "\t"])
def test_one_triangle_is_copied_to_the_other(tmp_path, empty, keep, mark):
    (tmp_path / "in").mkdir()
    truth = [random_fc(N, seed) for seed in range(3)]
    is_kept = keep(np.ones((N, N), bool))
    for seed, matrix in enumerate(truth):
        rows = np.where(is_kept, matrix.astype(str), empty)
        text = "\n".join(mark.join(row) for row in rows)
        (tmp_path / "in" / f"sub-{seed}.csv").write_text(text + "\n")
    cohort = read_cohort(tmp_path / "in", order=REGIONS)
    np.testing.assert_allclose(cohort.connectivity, np.stack(truth), atol=1e-6)
    side = "upper" if keep is np.triu else "lower"
    log = " ".join(cohort.notes["log"])
    assert f"only the {side} triangle is filled; it was copied to the other (3 scans)" in log


@pytest.mark.parametrize("mark", [",", "\t"])
def test_a_triangle_without_its_diagonal_keeps_its_last_row(tmp_path, mark):
    """The last row holds no number at all: a line of tabs."""
    (tmp_path / "in").mkdir()
    truth = random_fc(N, 0)
    is_kept = np.triu(np.ones((N, N), bool), 1)
    rows = np.where(is_kept, truth.astype(str), "")
    (tmp_path / "in" / "sub-1.tsv").write_text("\n".join(mark.join(row) for row in rows) + "\n")
    cohort = read_cohort(tmp_path / "in", order=REGIONS, values="r")
    np.testing.assert_allclose(cohort.connectivity[0], truth, atol=1e-6)


def test_mrtrix_matrices_are_an_upper_triangle_with_counts_on_the_diagonal(tmp_path):
    (tmp_path / "in").mkdir()
    truth = [counts(seed) for seed in range(3)]
    for seed, matrix in enumerate(truth):
        np.savetxt(tmp_path / "in" / f"sub-{seed}_connectome.csv", np.triu(matrix), "%d", ",")
    cohort = read_cohort(tmp_path / "in", order=REGIONS, measure="streamlines")
    assert (cohort.measure, cohort.connectivity[0].diagonal().max() > 1) == ("streamlines", True)
    np.testing.assert_array_equal(cohort.connectivity, np.stack(truth))


def test_check_does_not_ask_of_streamlines_what_correlations_have(tmp_path):
    write_all(tmp_path / "in", counts, n=12)
    ids = pd.DataFrame({"participant_id": [f"{i:02d}" for i in range(12)]})
    cohort = read_cohort(tmp_path / "in", order=REGIONS, measure="streamlines", participants=ids)
    quality = check_cohort(cohort)
    assert quality.usable, quality.faults
    assert "streamline counts" in " ".join(quality.table.astype(str).to_numpy().ravel())
    for name in ("tangent", "shrunk", "nerve"):
        with pytest.raises(NerveError, match=r"holds streamline counts, and .* needs Pearson"):
            method_class(name)().fit(cohort)
    assert method_class("pca")(n_components=3).fit_transform(cohort).shape[0] == 12


def test_a_preview_says_what_is_wrong_with_each_file(tmp_path):
    write_all(tmp_path / "in", counts, n=2)
    refused = preview(tmp_path / "in", order=REGIONS)
    assert refused.files["what becomes of it"].str.contains("--measure NAME").all()
    accepted = preview(tmp_path / "in", order=REGIONS, measure="streamlines")
    assert (accepted.files["what becomes of it"] == "read").all()
