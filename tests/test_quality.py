"""`nerve check`: a sound cohort is usable, each planted fault is found, a wrong region order is doubted."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from nerve.cli import app
from nerve.cohort import Cohort
from nerve.parcellation import Parcellation, load_parcellation
from nerve.quality import check_cohort, check_order
from nerve.quality.order import network_means


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
        cohort(networked(load_parcellation("schaefer100-17")), age=ages, mean_fd=0.1, score=[1.0] * 12)
    )
    assert quality.usable
    assert quality.drops.empty
    assert row(quality, "participants")["value"] == "12"
    assert row(quality, "covariate age")["detail"] == "8 to 20"
    assert row(quality, "target score")["verdict"] == "note"  # constant: nothing to predict
    assert row(quality, "motion")["value"] == "median 0.100 mm, largest 0.100"


@pytest.mark.parametrize(("true", "declared"), [("17", "7"), ("7", "17")])
def test_a_cohort_declared_in_the_wrong_order_is_unusable_and_the_right_one_is_named(true, declared):
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
    assert check_order(fc.mean(axis=0), load_parcellation("schaefer100-17+aseg19")).better == "schaefer100-7"


def test_noise_is_no_reason_to_doubt_an_order():
    rng = np.random.default_rng(0)
    for n in (1, 20):
        noise = np.mean([np.corrcoef(rng.normal(size=(100, 60))) for _ in range(n)], axis=0)
        assert not check_order(noise, load_parcellation("schaefer100-17")).better


def test_a_custom_atlas_must_show_its_networks():
    custom = Parcellation(tuple(map(str, range(30))), ("A", "B", "C") * 10)
    assert check_order(networked(custom).mean(axis=0), custom).plausible
    shuffled = Parcellation(custom.labels, tuple(np.random.default_rng(1).permutation(custom.networks)))
    order = check_order(networked(custom).mean(axis=0), shuffled)
    assert order.contrast < 0.2 * check_order(networked(custom).mean(axis=0), custom).contrast


def test_network_means_against_a_loop():
    fc, networks = networked(load_parcellation("schaefer100-17"), 1)[0], load_parcellation("schaefer100-17").networks
    within = [fc[i, j] for i in range(100) for j in range(i) if networks[i] == networks[j]]
    between = [fc[i, j] for i in range(100) for j in range(i) if networks[i] != networks[j]]
    np.testing.assert_allclose(network_means(fc, np.array(networks)), (np.mean(within), np.mean(between)))


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
    assert reasons["p2"] == reasons["p4"] == "1 regions have no data"
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
    assert row(quality, check)["verdict"] == "unusable"


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
    good = CliRunner().invoke(app, ["check", str(tmp_path / "good"), "--out", str(tmp_path / "q.tsv")])
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
    from nerve.quality.report import _column_rows

    rng = np.random.default_rng(0)
    fc = np.stack([np.corrcoef(x) for x in rng.normal(size=(12, 4, 30))])
    table = pd.DataFrame(
        {
            "participant_id": [f"sub-{i}" for i in range(12)],
            "scan": ["1987-06-05"] * 12,
            "born": ["5/6/1987", "05.06.1987"] * 6,
            "guid": [f"NDAR{i}" for i in range(12)],
            "sex": ["F", "M"] * 6,
        }
    )
    regions = Parcellation.from_table(pd.DataFrame({"label": list("abcd"), "network": list("XXYY")}), name="four")
    said = {row[0]: row[3] for row in _column_rows(Cohort(fc, table, regions))}
    assert said == {
        "target scan": "1 different values",
        "target born": "2 different values",
        "target guid": "12 different values",
        "covariate sex": "F (6), M (6)",
    }


def test_of_very_many_columns_some_are_shown_and_all_are_written(tmp_path):
    regions = load_parcellation("schaefer100-17")
    scores = {f"score{i}": np.arange(12.0) for i in range(50)} | {"sex": ["F", "M"] * 6}
    cohort(networked(regions), regions, **scores).save(tmp_path / "c")
    said = CliRunner().invoke(app, ["check", str(tmp_path / "c"), "--out", str(tmp_path / "q.tsv")]).output
    assert "score39" in said
    assert "score40" not in said
    assert "covariate sex" in said
    assert "and 10 more columns" in said
    assert "target score49" in (tmp_path / "q.tsv").read_text()
