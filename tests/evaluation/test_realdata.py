"""Real data: raw FC predicts what it is known to predict, and site explains part of age in ABIDE."""

import numpy as np
import pandas as pd
import pytest
from tests.evaluation.conftest import predict

from nerve import Cohort, Parcellation
from nerve.evaluation import score_table

pytestmark = [
    pytest.mark.realdata,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning"),
]


def load(folder, n_regions, names):
    """A cohort from the development arrays."""
    table = pd.read_csv(folder / "participants.tsv", sep="\t", na_values="n/a").rename(
        columns=names
    )
    upper = np.load(folder / f"fc_upper_{n_regions}.npy").astype(np.float32)
    rows, columns = np.triu_indices(n_regions, 1)
    fc = np.ones((len(upper), n_regions, n_regions), np.float32)
    fc[:, rows, columns] = fc[:, columns, rows] = upper
    regions = pd.DataFrame({"label": [f"r{i}" for i in range(n_regions)], "network": "all"})
    return Cohort(fc, table, Parcellation.from_table(regions, name="raw"), name=folder.name)


def test_age_and_sex_in_ucla_are_near_the_known_figures(shared_data):
    cohort = load(shared_data / "ucla_cnp", 419, {})
    scores = score_table(
        predict("raw", cohort, ["age", "sex"], n_folds=5), n_bootstrap=200
    ).set_index("target")
    assert 0.28 < scores.loc["age", "r"] < 0.50  # orientation: 0.36
    assert 0.70 < scores.loc["sex", "auc"] < 0.82  # orientation: 0.75
    assert scores.loc["age", "r_low_cv"] > 0


def test_age_in_abide_is_confounded_with_site(shared_data):
    """r over all people falls once site is taken out of age, and within left-out sites it is no higher than that."""
    cohort = load(
        shared_data / "abide_cc200",
        200,
        {"FILE_ID": "participant_id", "AGE_AT_SCAN": "age", "SITE_ID": "site"},
    )
    cohort = cohort.align(
        cohort.parcellation.subset(np.arange(0, 200, 2))
    )  # half of the regions tell as much

    def age(**options):
        return score_table(
            predict("raw", cohort, "age", motion=None, n_folds=3, **options), n_bootstrap=0
        ).iloc[0]

    plain, without_site = age(), age(covariates="site")
    assert 0.70 < plain["r"] < 0.82  # orientation: 0.76
    assert plain["r"] - without_site["r"] > 0.15
    assert age(site="site", leave_site_out=True)["r_fold_mean"] < plain["r"] - 0.05
    covariates_only = score_table(
        predict("covariates", cohort, "age", "site", motion=None, n_folds=3), n_bootstrap=0
    )
    assert covariates_only["r"].item() > 0.5  # what the site alone says of age
