"""Families and copies of participants: the answer is in relatives, and only a leak could find it there."""

import numpy as np
import pandas as pd
import pytest
from tests.evaluation.conftest import make_cohort, predict
from typer.testing import CliRunner

from nerve import Cohort, NerveError, Protocol
from nerve._utils.errors import NerveWarning
from nerve.cli import app
from nerve.data.duplicates import same_fc
from nerve.evaluation import Results, groups_of, make_feature_set, score_table
from nerve.evaluation.participants import prepare_participants
from nerve.evaluation.sites import site_accuracy

pytestmark = pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning")


def repeated(n, n_copies, noise, seed=0, **columns):
    """n participants, each `n_copies` times under other ids, with `noise` in the FC; the score has nothing to do
    with FC, but is nearly the same in all copies."""
    rng = np.random.default_rng(seed)
    single = make_cohort(n, n_regions=20, seed=seed)
    fc = np.repeat(single.connectivity, n_copies, axis=0)
    change = rng.normal(size=fc.shape).astype(np.float32) * noise
    score = np.repeat(rng.normal(size=n), n_copies) + 0.1 * rng.normal(size=n * n_copies)
    table = {
        "participant_id": [f"sub-{i:03}" for i in rng.permutation(n * n_copies)],
        "score": score,
        "family": np.repeat(np.arange(n), n_copies),
        "site": np.tile(["a", "b", "c"], n * n_copies)[: n * n_copies],
    }
    return Cohort(
        fc + (change + change.swapaxes(1, 2)) / 2,
        pd.DataFrame(table | columns),
        single.parcellation,
    )


def r_of(cohort, features="raw", **options):
    predictions = predict(features, cohort, "score", **options)
    return score_table(predictions, n_bootstrap=0)["r"].item()


def curve(cohort, folder, *words):
    """Mean score of the learning curve of raw FC, as the command line gives it."""
    cohort.save(folder / "cohort")
    options = [
        "--features",
        "raw",
        "--targets",
        "score",
        "--labels",
        "80",
        "--n-draws",
        "6",
        "--n-folds",
        "2",
    ]
    result = CliRunner().invoke(
        app,
        [
            "evaluate",
            str(folder / "cohort"),
            *options,
            "--n-bootstrap",
            "0",
            "--out",
            str(folder / "out"),
            *words,
        ],
    )
    assert result.exit_code == 0, result.output
    return Results.load(folder / "out").curves["score"].mean()


def test_learning_curves_keep_families_on_one_side(tmp_path, undrawn):
    """Siblings have FC that correlates by about .9, and nearly the same score."""
    assert abs(curve(repeated(50, 3, noise=0.05), tmp_path, "--groups", "family")) < 0.2


def test_learning_curves_keep_copies_on_one_side(tmp_path, undrawn):
    assert abs(curve(repeated(50, 3, noise=0.0), tmp_path)) < 0.2


@pytest.mark.parametrize("noise", [0.0, 1e-6, 1e-4])
def test_copies_are_found_whatever_was_done_to_their_digits(noise):
    cohort = repeated(40, 3, noise)
    assert abs(r_of(cohort, n_folds=5)) < 0.4
    rounded = Cohort(
        cohort.connectivity.astype(np.float16), cohort.participants, cohort.parcellation
    )
    mixed = Cohort.concat(
        [cohort.subset(np.arange(0, 120, 2)), rounded.subset(np.arange(1, 120, 2))]
    )
    assert abs(r_of(mixed, n_folds=5)) < 0.4


def test_more_copies_than_a_fold_holds_are_one_group_or_refused():
    cohort = repeated(8, 5, 0.0)
    with pytest.raises(
        NerveError, match=r"8 groups for 10 folds.*fewer folds.*participants of the same FC"
    ):
        r_of(cohort, n_folds=10)
    few = cohort.subset(np.r_[0:15, 15:40:5])  # three participants five times, five once
    with pytest.raises(
        NerveError, match=r"same FC as sub-.* would not fit one of 8 folds.* leave all but one out"
    ):
        r_of(few, n_folds=8)
    assert len(predict("raw", few, "score", n_folds=4)) == 20


def test_fc_that_is_the_same_for_everyone_is_refused():
    for fc in (np.tile(make_cohort(2).connectivity[:1], (20, 1, 1)), np.zeros((20, 8, 8))):
        cohort = make_cohort(20, score=np.arange(20.0))
        cohort = Cohort(fc, cohort.participants, cohort.parcellation, name="flat")
        with pytest.raises(
            NerveError, match=r"'flat': all 20 participants have the same FC .*nerve check"
        ):
            predict(np.random.default_rng(0).normal(size=(20, 3)), cohort, "score", n_folds=2)


def test_leaving_sites_out_also_leaves_out_relatives_at_other_sites():
    cohort = repeated(30, 2, 1e-6)  # the two copies of everyone are at different sites
    with pytest.warns(
        NerveWarning, match="30 participants left out: .*with participants of another site"
    ):
        r = r_of(cohort, site="site", leave_site_out=True)
    assert abs(r) < 0.5
    siblings = repeated(60, 2, 0.05)
    assert abs(r_of(siblings, site="site", leave_site_out=True, groups="family")) < 0.4


def test_a_copy_does_not_reveal_the_site():
    """Copies are of one site each time, so that a copy in training would name the site."""
    cohort = repeated(
        40, 3, 0.0, site=np.repeat(np.random.default_rng(1).choice(["a", "b"], 40), 3)
    )
    people, protocol = prepare_participants(
        cohort, Protocol(targets="score", site="site", n_folds=5)
    )
    prepared = make_feature_set("raw", cohort).prepare(cohort, people, protocol)
    assert site_accuracy(prepared, people, protocol) < 0.75


def test_copies_of_participants_of_two_families_join_the_families():
    cohort = repeated(30, 2, 0.0)  # rows 0 and 1 are copies, 2 and 3, and so on
    families = np.array([f"family {i}" for i in range(60)], object)
    families[4] = families[1]  # a family of the first and the third participant
    families[[7, 9]] = None
    cohort.participants["family"] = families
    people, _ = prepare_participants(
        cohort, Protocol(targets="score", groups="family", n_folds=5, n_repeats=3)
    )
    together = [0, 1, 4, 5]
    assert len(set(people.groups[together])) == 1
    assert len(set(people.groups)) == 29
    assert (people.folds[:, together] == people.folds[:, [0]]).all()


def test_thousands_of_copies_are_one_group_without_a_comparison_of_all_pairs():
    """The sketch finds candidates a block at a time; a group is joined by one comparison for each of its members."""
    rng = np.random.default_rng(0)
    fc = np.stack([np.corrcoef(rng.normal(size=(6, 40))) for _ in range(3000)]).astype(np.float32)
    fc[500:2500] = fc[0]
    upper = np.triu_indices(6, 1)
    compared = []

    def read(rows):
        compared.append(rows)
        return fc[rows][:, upper[0], upper[1]]

    (group,) = same_fc(fc, read)
    assert group.tolist() == [0, *range(500, 2500)]
    assert len(compared) < 2100


def test_copies_are_resampled_together_in_python_too():
    cohort = repeated(40, 3, 0.0)
    predictions = predict("raw", cohort, "score", n_folds=4)
    groups = groups_of(cohort)
    assert (groups.groupby(groups).size() == 3).all()
    apart, together = (
        score_table(predictions, 400, groups=one)["r_half_width"].item() for one in (None, groups)
    )
    assert together > 1.2 * apart  # 40 participants, not 120
