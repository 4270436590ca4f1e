"""`nerve check`: a sound cohort is usable, each planted fault is found, a wrong region order is doubted."""

import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from nerve.cli import app
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation, load_parcellation
from nerve.data.quality import check_cohort, check_order
from nerve.data.quality.columns import column_rows
from nerve.data.quality.order import network_means


def networked(parcellation, n=12, strength=0.6, seed=0):
    """Matrices in which regions of one network of the 17 share a signal."""
    rng = np.random.default_rng(seed)
    names = sorted(set(parcellation.networks))
    code = np.array([names.index(network) for network in parcellation.networks])
    matrices = []
    for _ in range(n):
        signal = rng.normal(size=(len(names), 120))[code]
        matrices.append(np.corrcoef(strength * signal + rng.normal(size=(len(code), 120))))
    return np.stack(matrices)


def cohort(fc, parcellation="schaefer100-17", **columns):
    people = pd.DataFrame({"participant_id": [f"p{i}" for i in range(len(fc))]} | columns)
    return Cohort(fc.astype(np.float32), people, parcellation)


def row(quality, check):
    return quality.table.set_index("check").loc[check]


def test_a_sound_cohort_is_usable():
    ages = np.linspace(8, 20, 12)
    quality = check_cohort(
        cohort(
            networked(load_parcellation("schaefer100-17")), age=ages, mean_fd=0.1, score=[1.0] * 12
        )
    )
    assert quality.usable
    assert quality.drops.empty
    assert row(quality, "participants")["value"] == "12"
    assert row(quality, "covariate age")["detail"] == "8 to 20"
    assert row(quality, "not targets")["detail"] == "score (constant)"
    assert row(quality, "smallest eigenvalue")["value"] == "none below -0.001"
    assert row(quality, "scans")["value"] == "1 per participant"
    assert row(quality, "motion")["value"] == "median 0.100 mm, largest 0.100"


@pytest.mark.parametrize(("true", "declared"), [("17", "7"), ("7", "17")])
def test_a_cohort_declared_in_the_wrong_order_is_unusable_and_the_right_one_is_named(
    true, declared
):
    truly = load_parcellation(f"schaefer200-{true}")
    # one set of matrices, in the order `true`, whose networks are those of the declared scheme
    fc = networked(truly.with_networks_of(f"schaefer200-{declared}"))
    wrong = check_cohort(cohort(fc, f"schaefer200-{declared}"))
    assert not wrong.usable
    assert wrong.order.better == f"schaefer200-{true}"
    assert f"--order schaefer200-{true}" in row(wrong, "region order")["detail"]
    aligned = cohort(fc, truly).align(f"schaefer200-{declared}")
    assert check_cohort(aligned).usable


def test_subcortical_regions_do_not_disturb_the_order_check():
    seven = load_parcellation("schaefer100-7+aseg19")
    fc = networked(seven.with_networks_of("schaefer100-17+aseg19"))
    assert (
        check_order(fc.mean(axis=0), load_parcellation("schaefer100-17+aseg19")).better
        == "schaefer100-7"
    )


def test_noise_is_no_reason_to_doubt_an_order():
    rng = np.random.default_rng(0)
    for n in (1, 20):
        noise = np.mean([np.corrcoef(rng.normal(size=(100, 60))) for _ in range(n)], axis=0)
        assert not check_order(noise, load_parcellation("schaefer100-17")).better


def test_a_custom_atlas_must_show_its_networks():
    custom = Parcellation(tuple(map(str, range(30))), ("A", "B", "C") * 10)
    assert check_order(networked(custom).mean(axis=0), custom).plausible
    shuffled = Parcellation(
        custom.labels, tuple(np.random.default_rng(1).permutation(custom.networks))
    )
    order = check_order(networked(custom).mean(axis=0), shuffled)
    assert order.contrast < 0.2 * check_order(networked(custom).mean(axis=0), custom).contrast


def test_network_means_against_a_loop():
    fc, networks = (
        networked(load_parcellation("schaefer100-17"), 1)[0],
        load_parcellation("schaefer100-17").networks,
    )
    within = [fc[i, j] for i in range(100) for j in range(i) if networks[i] == networks[j]]
    between = [fc[i, j] for i in range(100) for j in range(i) if networks[i] != networks[j]]
    np.testing.assert_allclose(
        network_means(fc, np.array(networks)), (np.mean(within), np.mean(between))
    )


def test_each_planted_fault_is_listed_with_its_participant():
    fc = networked(load_parcellation("schaefer100-17"), 16)
    fc[1] = fc[0]
    fc[2][3], fc[2][:, 3] = np.nan, np.nan
    fc[4][5], fc[4][:, 5] = 0.0, 0.0
    fc[6] = np.arctanh(np.clip(fc[6] * 2, -0.95, 0.95)) * 2
    fc[7][0, 1] += 0.1
    quality = check_cohort(cohort(fc))
    reasons = quality.drops.set_index("participant_id")["reason"]
    assert sorted(reasons.index) == ["p1", "p2", "p4", "p6", "p7"]
    assert reasons["p1"] == "the same matrix as participant p0"
    assert reasons["p2"] == reasons["p4"] == "1 region has no data"
    assert "expected [-1, 1]" in reasons["p6"]
    assert "not symmetric" in reasons["p7"]
    assert row(quality, "missing data")["value"] == "2 participants, 2 regions"
    assert row(quality, "duplicates")["detail"].endswith("p0 = p1")
    assert quality.usable  # eleven are left


@pytest.mark.parametrize(
    ("spoil", "check"),
    [
        (lambda fc: np.arctanh(0.9 * fc) * 3, "values"),
        (lambda fc: 0 * fc, "values"),
        (lambda fc: fc * np.nan, "participants"),
    ],
)
def test_unusable_cohorts(spoil, check):
    quality = check_cohort(cohort(spoil(networked(load_parcellation("schaefer100-17")))))
    assert not quality.usable
    assert row(quality, check)["verdict"] == "not usable"


def test_few_people_are_warned_of_but_can_be_embedded():
    quality = check_cohort(cohort(networked(load_parcellation("schaefer100-17"))[:3]))
    assert quality.usable
    assert row(quality, "participants")["verdict"] == "warning"


def test_float16_rounding_is_no_fault():
    fc = networked(load_parcellation("schaefer100-17")).astype(np.float16)
    people = pd.DataFrame({"participant_id": [f"p{i}" for i in range(len(fc))]})
    assert check_cohort(Cohort(fc, people, "schaefer100-17")).drops.empty


def test_the_command_writes_its_table_and_exits_1_when_unusable(tmp_path):
    truly = load_parcellation("schaefer100-7").with_networks_of("schaefer100-17")
    fc = networked(truly)
    fc[3] = fc[2]
    cohort(fc, truly).align("schaefer100-17").save(tmp_path / "good")
    cohort(fc, "schaefer100-17").save(tmp_path / "wrong")
    good = CliRunner().invoke(
        app, ["check", str(tmp_path / "good"), "--out", str(tmp_path / "q.tsv")]
    )
    assert good.exit_code == 0, good.output
    assert "would drop p3: the same matrix as participant p2" in good.output
    table = pd.read_csv(tmp_path / "q.tsv", sep="\t", dtype=str, keep_default_na=False)
    assert table.columns.tolist() == ["check", "value", "verdict", "detail"]
    assert table[table["check"] == "drop"]["value"].tolist() == ["p3"]
    wrong = CliRunner().invoke(app, ["check", str(tmp_path / "wrong")])
    assert wrong.exit_code == 1
    assert "schaefer100-7" in wrong.output


@pytest.mark.realdata
def test_real_cohorts_are_told_apart(shared_data):
    people = pd.read_csv(shared_data / "ucla_cnp/participants.tsv", sep="\t").iloc[:20]
    upper = np.load(shared_data / "ucla_cnp/fc_upper_419.npy", mmap_mode="r")[:20]
    fc = np.ones((20, 419, 419), np.float32)
    rows, columns = np.triu_indices(419, 1)
    fc[:, rows, columns] = fc[:, columns, rows] = upper
    ucla = Cohort(fc, people, "schaefer400-17+aseg19")
    assert check_cohort(ucla).usable
    declared_seven = check_cohort(Cohort(fc, people, "schaefer400-7+aseg19"))
    assert declared_seven.order.better == "schaefer400-17"
    series = np.load(shared_data / "stages/timeseries_ses-1.npz")
    stages = np.stack([np.corrcoef(series[name]) for name in series.files[:20]])
    names = pd.DataFrame({"participant_id": series.files[:20]})
    flagged = check_cohort(Cohort(stages, names, "schaefer400-17+aseg19"))
    assert flagged.order.better == "schaefer400-7"
    assert not flagged.usable
    assert check_cohort(Cohort(stages, names, "schaefer400-7+aseg19")).usable


def test_dates_and_words_of_single_people_are_counted_not_shown(tmp_path):
    table = pd.DataFrame(
        {
            "participant_id": [f"sub-{i}" for i in range(12)],
            "scan": ["1987-06-05"] * 12,
            "born": ["5/6/1987", "05.06.1987"] * 6,
            "guid": [f"NDAR{i}" for i in range(12)],
            "town": ["Ulm", *[f"Town{i}" for i in range(10)], "Ulm"],
            "seen": ["1987-06-05", *["never"] * 11],
            "sex": ["F", "M"] * 6,
        }
    )
    said = {row[0]: row[3] for row in column_rows(table)}
    assert said == {
        "target town": "11 different values",
        "target seen": "2 different values",
        "covariate sex": "F (6), M (6)",
        "not targets": "scan (constant), born (dates), guid (ids)",
    }


def test_index_and_id_columns_are_no_targets_and_scores_are():
    n = 20
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "participant_id": [f"p{i}" for i in range(n)],
            "Unnamed: 0": rng.permutation(n),
            "SUB_ID": 50000 + rng.permutation(n),
            "row": range(n),
            "counter": range(7, 7 + n),
            "visit_date": [f"2012-03-{i + 1:02d}" for i in range(n)],
            "empty": [np.nan] * n,
            "iq": 80 + rng.permutation(n),  # whole numbers, all different: still a score
            "p_factor": rng.normal(size=n),
            "grid": rng.integers(0, 3, n),  # ends in "id", and is no id
            "family_id": [f"f{i}" for i in range(n)],
        }
    )
    rows = {row[0]: row for row in column_rows(table)}
    assert [name for name in rows if name.startswith("target ")] == [
        "target iq",
        "target p_factor",
        "target grid",
    ]
    assert rows["not targets"][1:] == (
        "6 columns",
        "ok",
        "Unnamed: 0 (index), SUB_ID (ids), row (index), counter (index), visit_date (dates), empty (no values)",
    )
    assert "covariate family_id" in rows


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["unknown", ">89", "unknown"], "8 to 24; not numbers: 'unknown' (2), '>89' (1)."),
        (["12,5", "9,25", "11"], "8 to 24; 2 with a decimal comma."),
        (
            ["12,5", "?", "1987-06-05"],
            "8 to 24; 1 with a decimal comma; not numbers: '?' (1), '…' (1).",
        ),
    ],
)
def test_a_column_of_numbers_with_a_few_words_is_shown_with_them(cells, said):
    ages = [*map(str, range(8, 25)), *cells]
    table = pd.DataFrame(
        {"participant_id": [f"p{i}" for i in range(20)], "age": ages, "score": ages}
    )
    for check, value, verdict, detail in column_rows(table):
        assert check in ("covariate age", "target score")
        assert (value, verdict) == ("20 of 20", "warning")
        assert detail.startswith(said)


def unfolded_wrongly(fc):
    """The lower triangle row by row, as nilearn writes it, read as the upper one."""
    lower, wrong = np.tril_indices(len(fc), -1), np.eye(len(fc))
    upper = np.triu_indices(len(fc), 1)
    wrong[upper] = fc[lower]
    wrong.T[upper] = fc[lower]
    return wrong


def z_as_r(fc):
    return np.where(
        np.eye(len(fc)) > 0, 1.0, np.clip(np.arctanh(np.clip(fc, -0.999, 0.999)), -1, 1)
    )


@pytest.mark.parametrize("spoil", [unfolded_wrongly, z_as_r])
def test_matrices_that_cannot_be_correlations_are_not_usable(spoil, tmp_path):
    regions = load_parcellation("schaefer100-17")
    fc = np.stack([spoil(one) for one in networked(regions, strength=2.0)])
    quality = check_cohort(cohort(fc))
    assert "smallest eigenvalue" in quality.faults
    found = float(row(quality, "smallest eigenvalue")["value"])
    assert found == pytest.approx(min(np.linalg.eigvalsh(one)[0] for one in fc), rel=0.01)
    assert "p0, p1" in row(quality, "smallest eigenvalue")["detail"]
    cohort(fc).save(tmp_path / "c")
    said = CliRunner().invoke(app, ["check", str(tmp_path / "c")])
    assert said.exit_code == 1
    assert "not usable: " in said.output.splitlines()[-1]
    assert "smallest eigenvalue" in said.output.splitlines()[-1]


def test_one_damaged_matrix_is_a_participant_to_drop():
    fc = networked(load_parcellation("schaefer100-17"), strength=2.0)
    fc[5] = unfolded_wrongly(fc[5])
    quality = check_cohort(cohort(fc))
    assert quality.usable
    assert quality.drops["participant_id"].tolist() == ["p5"]
    assert (
        "not a matrix of Pearson correlations (r) (smallest eigenvalue -"
        in quality.drops["reason"].item()
    )


def test_what_rounding_and_averaging_do_is_told_from_damage():
    regions = load_parcellation("schaefer100-17")
    two = check_cohort(cohort(np.round(networked(regions, seed=1), 2)))
    assert two.usable
    short = np.stack([np.corrcoef(x) for x in np.random.default_rng(0).normal(size=(12, 100, 40))])
    rounded = row(check_cohort(cohort(np.round(short, 2))), "smallest eigenvalue")
    assert rounded["verdict"] == "warning"
    assert "rounded" in rounded["detail"]
    again = np.stack([np.corrcoef(x) for x in np.random.default_rng(1).normal(size=(12, 100, 40))])
    clipped = [np.arctanh(np.clip(one, -0.999999, 0.999999)) for one in (short, again)]
    averaged = np.tanh(np.mean(clipped, axis=0))
    quality = check_cohort(cohort(averaged, n_scans=2))
    assert row(quality, "smallest eigenvalue")["verdict"] in ("ok", "note")
    assert (
        row(quality, "scans")["detail"] == "100% of the participants are averages of several scans"
    )
    wrong = check_cohort(
        cohort(
            np.stack([unfolded_wrongly(one) for one in networked(regions, strength=2.0)]), n_scans=2
        )
    )
    assert not wrong.usable  # averaging is no excuse for that much


def test_many_scans_of_one_participant_are_doubted():
    fc = networked(load_parcellation("schaefer100-17"))
    scans = row(check_cohort(cohort(fc, n_scans=[6] + [1] * 11)), "scans")
    assert (scans["verdict"], scans["value"]) == ("warning", "1 to 6 per participant, 17 in all")
    assert "--dry-run" in scans["detail"]


@pytest.mark.parametrize("measure", ["covariance", "streamlines"])
def test_other_measures_are_not_held_to_the_rules_of_correlations(measure):
    sound = networked(load_parcellation("schaefer100-17"), strength=2.0)
    made = cohort(900 * (sound if measure == "covariance" else np.abs(sound)))
    made.measure = measure
    assert check_cohort(made).faults == ()
    scrambled = cohort(np.stack([unfolded_wrongly(one) for one in sound]))
    scrambled.measure = measure
    assert ("smallest eigenvalue" in check_cohort(scrambled).faults) == (measure == "covariance")


@pytest.mark.parametrize(
    ("match", "value", "verdict"),
    [
        ("label", "by label", "ok"),
        ("stated", "as the user stated", "ok"),
        ("size", "not confirmed", "warning"),
    ],
)
def test_how_regions_were_matched_is_shown(match, value, verdict):
    made = cohort(networked(load_parcellation("schaefer100-17")))
    made.notes["region_match"] = match
    assert tuple(row(check_cohort(made), "region match")[["value", "verdict"]]) == (value, verdict)


def test_reasons_are_told_to_their_end():
    made = cohort(networked(load_parcellation("schaefer100-17")))
    reason = (
        "a/very/long/path/" * 12
        + "file.tsv: the matrix is 3 x 4, expected a square matrix. Write it again."
    )
    made.exclusions = pd.DataFrame({"participant_id": ["q"], "reason": [reason]})
    detail = row(check_cohort(made), "already left out")["detail"]
    assert (
        detail == "exclusions.tsv says who and why"
    )  # whole there; here it would name a participant's file


@pytest.mark.slow
def test_of_very_many_columns_some_are_shown_and_all_are_written(tmp_path):
    regions = load_parcellation("schaefer100-17")
    scores = {f"score{i}": np.arange(12.0) for i in range(50)} | {"sex": ["F", "M"] * 6}
    cohort(networked(regions), regions, **scores).save(tmp_path / "c")
    said = (
        CliRunner()
        .invoke(app, ["check", str(tmp_path / "c"), "--out", str(tmp_path / "q.tsv")])
        .output
    )
    assert "score39" in said
    assert "score40" not in said
    assert "covariate sex" in said
    assert "and 10 more columns" in said
    assert "target score49" in (tmp_path / "q.tsv").read_text()


@pytest.mark.realdata
def test_the_table_of_eigenvalues_in_the_documents_is_what_the_data_give(shared_data):
    series = np.load(shared_data / "stages/timeseries_ses-1.npz")
    fc = [np.corrcoef(series[name].astype(float)) for name in series.files[:6]]

    def lowest(change):
        return min(np.linalg.eigvalsh(change(one).astype(float))[0] for one in fc)

    def z_for_r(one):
        return np.where(np.eye(419) > 0, 1.0, np.arctanh(np.clip(one, -0.999, 0.999)))

    def damaged(one):
        one = one.copy()
        one[7] = one[7, ::-1]
        one[:, 7] = one[7]
        one[7, 7] = 1
        return one

    halves = []
    for name in series.files[:6]:
        runs = [np.corrcoef(run.astype(float)) for run in np.split(series[name], 2, axis=1)]
        mean = np.tanh(
            np.mean([np.arctanh(np.clip(run, -1 + 1e-7, 1 - 1e-7)) for run in runs], axis=0)
        )
        np.fill_diagonal(mean, 1.0)
        halves.append(np.linalg.eigvalsh(mean)[0])
    found = {
        "float16": lowest(lambda one: one.astype(np.float16)),
        "4 decimals": lowest(lambda one: np.round(one, 4)),
        "3 decimals": lowest(lambda one: np.round(one, 3)),
        "2 decimals": lowest(lambda one: np.round(one, 2)),
        "halves averaged": min(halves),
        "z for r": lowest(z_for_r),
        "positive": lowest(lambda one: np.maximum(one, 0)),
        "damaged row": lowest(damaged),
        "unfolded": lowest(unfolded_wrongly),
    }
    expected = {
        "float16": -0.002, "4 decimals": -0.001, "3 decimals": -0.011, "2 decimals": -0.11, "halves averaged": -0.46,
        "z for r": -0.87, "positive": -1.3, "damaged row": -4.5, "unfolded": -22,
    }  # fmt: skip
    assert {name: float(f"{value:.2g}") for name, value in found.items()} == expected


REGIONS = load_parcellation("schaefer100-17")
NOT_FC = {
    "distances": (
        lambda fc: np.where(np.eye(100), 1, 1 - fc),
        "networks against chance",
        "distanc",
    ),
    "noise": (
        lambda fc: np.stack([one[order][:, order] for one in fc for order in [ORDER]]),
        "networks against chance",
        "another order",
    ),
    "absolute values": (np.abs, "distribution", "mutual information"),
    "no negatives": (lambda fc: np.maximum(fc, 0), "distribution", "negative values set to 0"),
    "binary": (
        lambda fc: np.where(np.eye(100), 1, fc > 0.2).astype(float),
        "distribution",
        "binary",
    ),
    "cosines": (lambda fc: np.where(np.eye(100), 1, 0.9 + fc / 20), "mean FC", "cosine"),
    "changed sign": (lambda fc: np.where(np.eye(100), 1, -0.4 - fc / 3), "mean FC", "sign"),
}
ORDER = np.random.default_rng(3).permutation(100)


@pytest.mark.parametrize("name", NOT_FC)
def test_what_is_not_fc_is_not_usable_and_what_it_looks_like_is_said(name):
    change, check, words = NOT_FC[name]
    sound = networked(REGIONS)
    assert check_cohort(cohort(sound)).usable
    quality = check_cohort(cohort(change(sound)))
    assert check in quality.faults
    assert words in row(quality, check)["detail"]


def test_the_networks_are_compared_with_shuffled_ones_and_both_numbers_said():
    shown = row(check_cohort(cohort(networked(REGIONS))), "networks against chance")
    assert re.fullmatch(r"contrast 0\.\d{3}", shown["value"])
    assert re.fullmatch(r"95th percentile of 200 shuffled networks: 0\.\d{3}", shown["detail"])
