"""Simulated cohorts look like real ones, and what was planted in them is there to be found."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import nerve
from nerve._utils.errors import NerveError
from nerve.cli import app
from nerve.data.connectivity import fisher_z, pearson
from nerve.data.simulate import (
    Target,
    default_targets,
    factor_scores,
    patch_means,
    simulate_cohort,
    simulate_cohorts,
    simulate_to,
)
from nerve.data.simulate.participants import draw_participant
from nerve.data.simulate.plan import SimulationPlan
from nerve.data.simulate.population import SESSION_COUPLING

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cohort():
    return simulate_cohort(400, keep_timeseries=False)


@pytest.fixture(scope="module")
def scanned():
    """Forty people with time series, and the same people on another day."""
    return simulate_cohort(40), simulate_cohort(40, session=2)


def within_and_between(fc, parcellation):
    networks = np.array(parcellation.networks)
    same = networks[:, None] == networks
    off_diagonal = ~np.eye(len(networks), dtype=bool)
    return fc[same & off_diagonal].mean(), fc[~same].mean()


def correlations_with(values, cohort):
    """Of the mean FC of every network pair with `values`, by the pair's name."""
    patching = nerve.Patching.from_parcellation(cohort.parcellation)
    means = patch_means(cohort.connectivity, patching)
    return pd.Series([np.corrcoef(values, column)[0, 1] for column in means.T], patching.pair_names)


def without_covariates(table, target):
    """A target after regression on age, sex, site and motion."""
    covariates = pd.get_dummies(table[["age", "sex", "site"]], drop_first=True).astype(float)
    design = covariates.assign(motion=np.log(table["mean_fd"]), one=1.0).to_numpy()
    return table[target] - design @ np.linalg.lstsq(design, table[target])[0]


def planted(entries):
    return {"–".join(entry["networks"]) for entry in entries}


def self_and_others(first, second):
    """Mean similarity of people to themselves and to others, and how many are most like themselves."""
    n = len(first)
    similarity = np.corrcoef(first, second)[:n, n:]
    others = similarity[~np.eye(n, dtype=bool)]
    return (
        np.diag(similarity).mean(),
        others.mean(),
        (similarity.argmax(axis=1) == np.arange(n)).mean(),
    )


@pytest.mark.parametrize("name", ["schaefer100-17", "schaefer200-17"])
def test_network_means_are_those_of_real_data(name):
    cohort = simulate_cohort(60, name, keep_timeseries=False)
    within, between = within_and_between(cohort.connectivity.mean(axis=0), cohort.parcellation)
    assert within == pytest.approx(0.312, abs=0.05)
    assert between == pytest.approx(-0.003, abs=0.025)


@pytest.mark.realdata
def test_the_group_mean_resembles_that_of_ucla(shared_data):
    upper = np.load(shared_data / "ucla_cnp" / "fc_upper_419.npy").astype(np.float32).mean(axis=0)
    real = np.eye(419, dtype=np.float32)
    real[np.triu_indices(419, 1)] = upper
    real = (real + np.triu(real, 1).T)[:400, :400]
    cohort = simulate_cohort(60, "schaefer400-17", keep_timeseries=False)
    simulated = cohort.connectivity.mean(axis=0)
    np.testing.assert_allclose(
        within_and_between(simulated, cohort.parcellation),
        within_and_between(real, cohort.parcellation),
        atol=0.03,
    )
    patching = nerve.Patching.from_parcellation(cohort.parcellation)
    both = np.corrcoef(patch_means(real, patching), patch_means(simulated, patching))
    assert both[0, 1] > 0.95
    edges = np.triu_indices(400, 1)
    assert np.corrcoef(real[edges], simulated[edges])[0, 1] > 0.7


def test_mirrored_and_neighbouring_regions_are_strongly_coupled_and_default_opposes_attention(
    cohort,
):
    fc = cohort.connectivity.mean(axis=0)
    places = cohort.parcellation.coordinates
    left = np.flatnonzero(np.array(cohort.parcellation.hemispheres) == "L")
    right = np.flatnonzero(np.array(cohort.parcellation.hemispheres) == "R")
    distance = np.linalg.norm(places[left][:, None] * [-1, 1, 1] - places[right][None], axis=-1)
    assert fc[left, right[distance.argmin(axis=1)]].mean() > 0.35
    networks = np.array(cohort.parcellation.networks)
    apart = networks[:, None] != networks
    distance = np.linalg.norm(places[:, None] - places[None], axis=-1)
    assert fc[apart & (distance < 30)].mean() > 0.1 > fc[apart & (distance > 60)].mean()
    assert fc[np.ix_(networks == "DefaultA", networks == "DorsAttnB")].mean() < -0.05


def test_every_matrix_is_a_correlation_matrix(scanned, cohort):
    for some in (scanned[0], cohort.subset(np.arange(40))):
        fc = some.connectivity
        assert fc.dtype == np.float32
        np.testing.assert_array_equal(fc, fc.swapaxes(1, 2))
        np.testing.assert_array_equal(np.einsum("nii->ni", fc), 1)
        assert np.abs(fc).max() <= 1
        assert np.linalg.eigvalsh(fc.astype(float)).min() > -1e-4


def test_connectivity_is_that_of_the_time_series(scanned):
    cohort = scanned[0]
    assert cohort.timeseries[3].shape == (200, 100)
    np.testing.assert_allclose(
        cohort.connectivity[3], np.corrcoef(cohort.timeseries[3].T), atol=1e-5
    )


def test_volumes_are_autocorrelated_as_stated():
    series = simulate_cohort(3, timepoints=2000, autocorrelation=0.5).timeseries[0]
    lagged = [np.corrcoef(region[:-1], region[1:])[0, 1] for region in series.T]
    assert np.mean(lagged) == pytest.approx(0.5, abs=0.03)


def test_the_two_halves_of_a_scan_and_two_sessions_resemble_each_other(scanned):
    first, second = scanned
    edges = np.triu_indices(100, 1)
    halves = [
        np.array([pearson(one[half])[edges] for one in first.timeseries])
        for half in (slice(100), slice(100, 200))
    ]
    same, others, recognised = self_and_others(*halves)
    assert same > others + 0.1
    assert recognised > 0.9
    assert list(first.participants["participant_id"]) == list(second.participants["participant_id"])
    same, others, recognised = self_and_others(first.inputs("upper"), second.inputs("upper"))
    assert same > others + 0.15
    assert recognised > 0.95


def test_between_two_visits_only_the_visits_own_part_of_the_coupling_changes():
    first, second = (SimulationPlan(n=1, session=session) for session in (1, 2))
    person = SimulationPlan(n=1).drawn[0]
    change = (first.state(person) - second.state(person))[
        np.triu_indices(first.population.n_signals, 1)
    ]
    assert np.sqrt((change**2).mean()) == pytest.approx(np.sqrt(2) * SESSION_COUPLING, rel=0.2)


def test_fewer_independent_volumes_have_the_sampling_noise_of_the_time_series():
    plan = SimulationPlan(n=1, timepoints=400)
    person = plan.drawn[0]
    edges = np.triu_indices(100, 1)
    kept, direct = [], []
    fixed = plan.state(person)
    for session in range(
        40
    ):  # the coupling is kept, so that only the volumes differ from scan to scan
        for keep, found in ((True, kept), (False, direct)):
            scanner = SimulationPlan(n=1, timepoints=400, session=session + 1, keep_timeseries=keep)
            scanner.state = lambda _: fixed
            found.append(fisher_z(pearson(scanner.series(person)))[edges])
    assert np.std(direct, axis=0).mean() == pytest.approx(np.std(kept, axis=0).mean(), rel=0.05)
    assert np.corrcoef(np.mean(kept, axis=0), np.mean(direct, axis=0))[0, 1] > 0.99


@pytest.mark.parametrize("target", ["p_factor", "internalizing", "externalizing"])
def test_the_pairs_that_correlate_most_with_a_target_are_the_planted_ones(cohort, target):
    relation = cohort.notes["truth"]["targets"][target]
    strongest = max(relation["factors"], key=relation["factors"].get)
    entries = cohort.notes["truth"]["factors"][strongest]
    found = correlations_with(without_covariates(cohort.participants, target), cohort)
    among_all = {"–".join(pair) for pair in relation["pairs"]}
    top = found.abs().sort_values(ascending=False).index
    assert set(top[:3]) <= among_all
    for entry in entries:
        assert np.sign(found["–".join(entry["networks"])]) == np.sign(entry["fc_change_per_sd"])


def test_the_null_target_correlates_with_nothing(cohort):
    found = correlations_with(cohort.participants["null"], cohort)
    assert found.abs().max() < 4.2 / np.sqrt(
        len(cohort)
    )  # the largest of 153 under the null, p < 0.005
    assert cohort.notes["truth"]["targets"]["null"]["pairs"] == []


def test_effects_of_age_and_sex_are_found_where_they_were_planted(cohort):
    for name, values in (
        ("age", cohort.participants["age"]),
        ("sex", cohort.participants["sex"] == "F"),
    ):
        found = correlations_with(values, cohort).abs().sort_values(ascending=False)
        assert set(found.index[:2]) <= planted(cohort.notes["truth"]["covariates"][name])


def test_motion_raises_short_range_connectivity_more_than_long_range(cohort):
    places = cohort.parcellation.coordinates[list(np.triu_indices(100, 1))]
    distance = np.linalg.norm(places[0] - places[1], axis=-1)
    upper = cohort.inputs("upper")
    motion = np.log(cohort.participants["mean_fd"].to_numpy())
    upper, motion = (values - values.mean(axis=0) for values in (upper, motion))
    found = motion @ upper / (motion @ motion)
    assert found[distance < 40].mean() > found[distance > 90].mean() + 0.005


def test_scanners_can_be_told_apart(cohort):
    upper = cohort.inputs("upper")
    sites = cohort.participants["site"].to_numpy()
    names = np.unique(sites)
    assert len(names) == 3
    half = np.arange(len(cohort)) < 200
    centres = [upper[half & (sites == site)].mean(axis=0) for site in names]
    guess = np.argmin([((upper[~half] - centre) ** 2).sum(axis=1) for centre in centres], axis=0)
    assert (names[guess] == sites[~half]).mean() > 0.55  # a third by chance


def test_stated_changes_of_connectivity_are_those_that_people_show(cohort):
    scores = factor_scores(cohort)
    patching = nerve.Patching.from_parcellation(cohort.parcellation)
    means = pd.DataFrame(patch_means(cohort.connectivity, patching), columns=patching.pair_names)
    factors = list(cohort.notes["truth"]["factors"])
    design = np.column_stack([np.ones(len(cohort)), scores[factors]])
    slopes = pd.DataFrame(
        np.linalg.lstsq(design, means, rcond=None)[0][1:], factors, patching.pair_names
    )
    stated = {
        (factor, "–".join(entry["networks"])): entry["fc_change_per_sd"]
        for factor in factors
        for entry in cohort.notes["truth"]["factors"][factor]
    }
    seen = [slopes.loc[key] for key in stated]
    assert np.corrcoef(seen, list(stated.values()))[0, 1] > 0.95
    assert np.abs(seen).mean() == pytest.approx(np.abs(list(stated.values())).mean(), rel=0.25)


def test_targets_have_the_stated_relation_to_their_factors():
    targets = default_targets(0.5)
    plan = SimulationPlan(n=3000, targets=targets)
    table = plan.participants()
    scores = np.array([person.scores for person in plan.drawn])
    for target in targets[:3]:
        g = scores @ target.weights(plan.factor_names)
        assert np.corrcoef(g, table[target.name])[0, 1] == pytest.approx(0.5, abs=0.04)
        assert table[target.name].std() == pytest.approx(1, abs=0.05)
        after = np.corrcoef(g, without_covariates(table, target.name))[0, 1]
        assert after == pytest.approx(target.true_r_after_covariates, abs=0.04)


def test_a_larger_cohort_begins_with_the_smaller_one_and_seeds_decide():
    small, large, other = (
        simulate_cohort(n, seed=seed, timepoints=50) for n, seed in ((5, 3), (70, 3), (5, 4))
    )
    np.testing.assert_array_equal(small.connectivity, large.connectivity[:5])
    pd.testing.assert_frame_equal(small.participants, large.participants[:5])
    assert simulate_cohort(5, seed=3, timepoints=50).fingerprint == small.fingerprint
    assert not np.allclose(small.connectivity, other.connectivity)


def test_writing_in_chunks_gives_the_same_cohort(tmp_path, monkeypatch):
    settings = {"timepoints": 40, "seed": 2, "structure_seed": 5, "family_size": 2}
    whole = simulate_cohort(10, **settings)
    monkeypatch.setattr("nerve.data.simulate.plan.CHUNK", 3)
    loaded = nerve.Cohort.load(simulate_to(tmp_path / "cohort", 10, scores=True, **settings))
    assert loaded.fingerprint == whole.fingerprint
    assert (
        loaded.notes == whole.notes == {"source": "nerve simulate", "truth": whole.notes["truth"]}
    )
    assert json.loads((tmp_path / "cohort" / "truth.json").read_text()) == whole.notes["truth"]
    table = pd.read_csv(tmp_path / "cohort" / "truth_scores.tsv", sep="\t")
    pd.testing.assert_frame_equal(table, factor_scores(whole), check_dtype=False)
    pd.testing.assert_frame_equal(
        factor_scores(whole.subset([7, 2])), table.iloc[[7, 2]].reset_index(drop=True)
    )


def test_cohorts_share_structure_but_not_people_or_scanners():
    alpha, beta = simulate_cohorts(
        ["alpha", "beta"], [6, 4], without_timeseries=["beta"], structure_seed=9
    )
    assert alpha.notes["truth"]["factors"] == beta.notes["truth"]["factors"]
    assert alpha.timeseries is not None
    assert beta.timeseries is None
    for column in ("site", "participant_id"):
        assert not set(alpha.participants[column]) & set(beta.participants[column])
    assert len(nerve.Cohort.concat([alpha, beta])) == 10
    other = simulate_cohort(4, structure_seed=10, timepoints=20)
    assert alpha.notes["truth"]["factors"] != other.notes["truth"]["factors"]


def test_pairs_planted_in_one_cohort_are_found_in_another():
    cohorts = simulate_cohorts(["alpha", "beta"], 200, keep_timeseries=False)
    first, second = (
        correlations_with(cohort.participants["p_factor"], cohort) for cohort in cohorts
    )
    pairs = planted(cohorts[0].notes["truth"]["factors"]["general"])
    assert set(first.abs().nlargest(3).index) == set(second.abs().nlargest(3).index) == pairs


def test_siblings_are_alike():
    people = [draw_participant(0, number, 8, family_size=2, n_sites=3) for number in range(2000)]
    scores = np.array([person.scores for person in people])
    assert np.corrcoef(scores[::2].ravel(), scores[1::2].ravel())[0, 1] == pytest.approx(
        0.5, abs=0.04
    )
    assert scores.std() == pytest.approx(1, abs=0.03)
    assert all(one.site == other.site for one, other in zip(people[::2], people[1::2], strict=True))


def test_stated_pairs_and_any_parcellation_are_taken():
    table = pd.DataFrame(
        {"label": list("abcdefghij"), "network": ["one"] * 3 + ["two"] * 3 + ["three"] * 4}
    )
    parcellation = nerve.Parcellation.from_table(table)
    mine = Target("mine", 0.8, {"general": 1.0})
    cohort = simulate_cohort(
        200,
        parcellation,
        targets=[mine],
        pairs={"general": [("three", "one")]},
        n_factors=1,
        strength=0.12,
    )
    assert cohort.notes["truth"]["targets"]["mine"]["pairs"] == [["one", "three"]]
    assert correlations_with(cohort.participants["mine"], cohort).abs().idxmax() == "one–three"
    assert simulate_cohort(3, "schaefer100-7+aseg19", timepoints=20).n_regions == 119


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"n": 0}, "n is 0, expected a whole number of at least 1"),
        ({"n": 2.5}, "n is 2.5, expected a whole number"),
        ({"timepoints": 5}, "timepoints is 5, expected a whole number of at least 20"),
        ({"seed": -1}, "seed is -1"),
        ({"autocorrelation": 1.0}, "autocorrelation is 1.0, expected at least 0 and below 1"),
        ({"strength": 2}, "strength is 2"),
        ({"ages": (20, 10)}, r"ages are \(20, 10\)"),
        ({"sites": 0}, "sites is 0"),
        ({"sites": ["a", "a"]}, "expected a number or different names"),
        ({"n_factors": 2}, "n_factors is 2, expected at least 3"),
        (
            {"pairs": {"generl": []}},
            "A factor of pairs is 'generl', expected one of .* Did you mean 'general'",
        ),
        (
            {"pairs": {"general": [("DefaultA", "DefalutB")]}},
            "'general' is 'DefalutB', .* Did you mean 'DefaultB'",
        ),
        (
            {"pairs": {"general": []}},
            "The pairs of 'general': no network pair, expected at least one",
        ),
        ({"pairs": {"general": [("DefaultA",)]}}, "'general': .* expected two networks"),
        (
            {"targets": [Target("a", 0.1, {"x": 1.0})]},
            "A factor of target 'a' is 'x', expected one of",
        ),
        ({"targets": [Target("a", 0.0), Target("a", 0.0)]}, "Two targets have the same name"),
        ({"parcellation": "schaefer99"}, "neither a built-in parcellation nor a file"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(settings, sentence):
    with pytest.raises(nerve.NerveError, match=sentence):
        simulate_cohort(**{"n": 2, "timepoints": 20} | settings)


def test_bad_targets_are_refused_in_one_sentence():
    with pytest.raises(nerve.NerveError, match="the name is taken"):
        Target("age")
    with pytest.raises(
        nerve.NerveError, match=r"explain 1\.06 of its variance, expected at most 1"
    ):
        Target("y", 0.9, {"general": 1.0}, age=0.5)
    with pytest.raises(nerve.NerveError, match="no factor has a weight"):
        Target("y", 0.5)


def test_scores_of_a_cohort_that_was_not_simulated_are_refused():
    table = pd.DataFrame({"participant_id": ["a"]})
    real = nerve.Cohort(np.eye(100, dtype=np.float32)[None], table, "schaefer100-17")
    with pytest.raises(nerve.NerveError, match="expected a simulated cohort"):
        factor_scores(real)


def test_the_command_writes_what_the_function_makes(tmp_path):
    out = tmp_path / "first"
    options = [
        "--subjects",
        "6",
        "--timepoints",
        "30",
        "--seed",
        "3",
        "--effect",
        "0.4",
        "--scores",
    ]
    result = CliRunner().invoke(app, ["simulate", str(out), *options])
    assert result.exit_code == 0, result.output
    assert "6 participants" in result.output
    assert "p_factor" in result.output
    expected = simulate_cohort(6, timepoints=30, seed=3, name="first", targets=default_targets(0.4))
    assert nerve.Cohort.load(out).fingerprint == expected.fingerprint
    assert (out / "truth.json").is_file()
    assert (out / "truth_scores.tsv").is_file()


def test_the_command_without_time_series_keeps_none_and_never_overwrites_unasked(tmp_path):
    out = str(tmp_path / "c")
    options = ["simulate", out, "--subjects", "2", "--no-timeseries", "--dtype", "float16"]
    assert CliRunner().invoke(app, options).exit_code == 0
    cohort = nerve.Cohort.load(out)
    assert cohort.timeseries is None
    assert cohort.connectivity.dtype == np.float16
    refused = CliRunner().invoke(app, options)
    assert isinstance(refused.exception, nerve.NerveError)
    assert "already exists" in str(refused.exception)
    assert CliRunner().invoke(app, [*options, "--overwrite"]).exit_code == 0


def test_a_brain_seen_in_another_atlas_is_the_average_of_its_small_regions():
    fine = simulate_cohort(3, "schaefer400-17", 60, seed=4)
    seen = simulate_cohort(3, "schaefer400-17", 60, seed=4, seen_in="shen268")
    pd.testing.assert_frame_equal(seen.participants, fine.participants)
    assert seen.notes["truth"]["targets"] == fine.notes["truth"]["targets"]
    assert seen.notes["truth"]["seen_in"] == "shen268"
    assert seen.parcellation.name == "shen268"
    # one region, by hand: the small regions of its side that have no nearer centre
    region = seen.parcellation.labels[7]
    place = seen.parcellation.coordinates
    small = fine.parcellation.coordinates
    members = []
    for number, centre in enumerate(small):
        same_side = place[:, 0] * centre[0] >= 0
        distances = np.where(same_side, np.linalg.norm(place - centre, axis=1), np.inf)
        if distances.argmin() == 7:
            members.append(number)
    assert members, region
    series = np.asarray(fine.timeseries[1], float)[:, members]
    expected = ((series - series.mean(axis=0)) / series.std(axis=0)).mean(axis=1)
    np.testing.assert_allclose(np.asarray(seen.timeseries[1])[:, 7], expected, atol=1e-4)


def test_a_brain_without_centres_is_not_seen_in_another_atlas():
    with pytest.raises(NerveError, match="have no MNI centre"):
        simulate_cohort(2, "4s156-17", 30, seen_in="shen268")
