"""Tables that look right and are not: words among numbers, and one participant under two ids."""

import numpy as np
import pandas as pd
import pytest

from nerve import Cohort, Protocol
from nerve._utils.errors import NerveError
from nerve._utils.privacy import for_screen
from nerve.data.quality import check_cohort
from nerve.evaluation.participants import prepare_participants

from .conftest import make_cohort


def with_ages(change):
    """A cohort whose ages went through a file after `change`, as a user's do."""
    rng = np.random.default_rng(0)
    age = [f"{value:.1f}" for value in rng.uniform(8, 90, 80)]
    cohort = make_cohort(80, age=change(age), score=rng.normal(size=80))
    cohort.participants["age"] = pd.Series(cohort.participants["age"].tolist(), dtype=object)
    return cohort


def with_words(age):
    return [*age[:5], "unknown", *age[6:40], ">89", *age[41:]]


def test_words_among_numbers_are_refused_by_column_and_cell():
    with pytest.raises(
        NerveError,
        match=r"'age': 'unknown' \(sub-005\), '>89' \(sub-040\) are not numbers among 78",
    ):
        prepare_participants(with_ages(with_words), Protocol(targets="score", covariates="age"))


def test_words_among_numbers_are_missing_when_asked_for():
    people, _ = prepare_participants(
        with_ages(with_words), Protocol(targets="score", covariates="age", non_numeric="missing")
    )
    assert people.covariates["age"].dtype.kind == "f"
    assert np.flatnonzero(people.covariates["age"].isna()).tolist() == [5, 40]
    assert any("age: 2 missing" in note for note in people.notes)


def test_decimal_commas_are_refused_and_categories_are_not():
    cohort = with_ages(lambda age: [one.replace(".", ",") for one in age])
    with pytest.raises(NerveError, match="commas"):
        prepare_participants(cohort, Protocol(targets="score", covariates="age"))
    words = make_cohort(
        80, hand=["left", "right"] * 40, score=np.random.default_rng(1).normal(size=80)
    )
    prepare_participants(words, Protocol(targets="score", covariates="hand"))


def test_check_shows_words_among_numbers():
    table = check_cohort(with_ages(with_words)).table.set_index("check")
    assert table.loc["covariate age", "verdict"] == "warning"
    assert "'unknown' (1), '>89' (1)" in table.loc["covariate age", "detail"]


@pytest.mark.parametrize("families", [None, "family"])
def test_one_participant_under_two_ids_is_in_one_fold_with_a_note(families):
    rng = np.random.default_rng(2)
    single = make_cohort(60, score=rng.normal(size=60), family=[f"F{i // 2}" for i in range(60)])
    twice = single.subset(np.arange(20))
    table = twice.participants.assign(
        participant_id=[f"again-{i}" for i in range(20)], family="alone"
    )
    table["family"] = [f"G{i}" for i in range(20)]
    fc = np.concatenate([single.connectivity, twice.connectivity])
    cohort = Cohort(
        fc, pd.concat([single.participants, table], ignore_index=True), single.parcellation
    )
    people, _ = prepare_participants(
        cohort, Protocol(targets="score", groups=families, n_repeats=3)
    )
    assert (people.folds[:, 60:] == people.folds[:, :20]).all()
    if families:
        assert (people.folds[:, 0:60:2] == people.folds[:, 1:60:2]).all()
    assert any("sub-000 = again-0" in for_screen(note) for note in people.notes)
    assert not any("again-" in note for note in people.notes)  # as files have them


def test_the_note_on_the_same_fc_is_true_when_sites_are_left_out():
    rng = np.random.default_rng(2)
    single = make_cohort(60, score=rng.normal(size=60), site=list("ABC") * 20)
    copy = single.subset(np.arange(1))
    table = copy.participants.assign(
        participant_id="again-0", site="B"
    )  # the first of site A, once more
    fc = np.concatenate([single.connectivity, copy.connectivity])
    cohort = Cohort(
        fc, pd.concat([single.participants, table], ignore_index=True), single.parcellation
    )
    people, _ = prepare_participants(
        cohort, Protocol(targets="score", site="site", leave_site_out=True)
    )
    (note,) = [note for note in map(for_screen, people.notes) if "sub-000 = again-0" in note]
    assert "kept together" in note
    assert (people.folds[0, [0, 60]] < 0).sum() == 1  # one is left out: sites part them
    assert any("1 participant left out" in note and "another site" in note for note in people.notes)


def test_fc_that_correlates_above_0_9999_counts_as_the_same():
    cohort = make_cohort(12, score=range(12))
    fc = np.array(cohort.connectivity)
    fc[3] = fc[7]
    fc[9] = 0.98 * fc[7] + 0.02 * fc[9]  # a correlation of about .9998
    fc[9, 5, 6] += 0.1  # and now of less than .9999
    same = Cohort(fc, cohort.participants, cohort.parcellation)
    assert [rows.tolist() for rows in same.same_matrices()] == [[3, 7]]
    shuffled = same.align(cohort.parcellation.subset([5, 3, 1, 0, 2, 4, 6, 7])).subset([7, 1, 3])
    assert [rows.tolist() for rows in shuffled.same_matrices()] == [[0, 2]]


def with_codes(values, name="score"):
    rng = np.random.default_rng(0)
    return make_cohort(80, **{name: values(rng), "other": rng.normal(size=80)})


@pytest.mark.parametrize(
    ("values", "code"),
    [
        (lambda rng: [999.0, 999.0, *rng.uniform(8, 21, 78)], 999),
        (lambda rng: [-9.0, -9.0, *rng.uniform(70, 130, 78)], -9),
        (lambda rng: [-999.0, -999.0, *rng.normal(size=78)], -999),
        (lambda rng: [777.0, 777.0, 888.0, 888.0, *rng.uniform(0, 20, 76)], 777),
        (lambda rng: [9, 9, 9, *rng.integers(1, 3, 77)], 9),
    ],
)
def test_codes_that_were_not_declared_are_suspicious_and_stop_an_evaluation(values, code):
    cohort = with_codes(values)
    table = check_cohort(cohort).table.set_index("check")
    assert table.loc["target score", "verdict"] == "suspicious"
    assert f"--na-values score={code}" in table.loc["target score", "detail"]
    for settings in ({"targets": "score"}, {"targets": "other", "covariates": "score"}):
        with pytest.raises(NerveError, match=f"{code} stands .*--na-values score={code}"):
            prepare_participants(cohort, Protocol(**settings))
        # the two remedies: they are real, or they are missing
        prepare_participants(cohort, Protocol(**settings, confirmed_values="score"))
    column = cohort.participants["score"]
    cohort.participants["score"] = column.where(~column.isin([code, 888]))
    assert check_cohort(cohort).table.set_index("check").loc["target score", "verdict"] == "ok"
    prepare_participants(cohort, Protocol(targets="score"))


@pytest.mark.parametrize(
    "values",
    [
        lambda rng: rng.normal(size=80),
        lambda rng: rng.integers(1, 10, 80),  # 9 is the last of many
        lambda rng: rng.integers(7, 10, 80),
        lambda rng: [999.0, *rng.uniform(8, 21, 79)],  # once: an outlier
        lambda rng: [0, 0, 0, *rng.uniform(50, 60, 77)],
        lambda rng: rng.integers(0, 2, 80),
    ],
)
def test_values_of_an_ordinary_column_are_not_suspicious(values):
    cohort = with_codes(values)
    assert check_cohort(cohort).table.set_index("check").loc["target score", "verdict"] == "ok"
    prepare_participants(cohort, Protocol(targets="score"))


def test_ages_in_words_are_refused_by_name():
    cohort = with_codes(lambda rng: ["26-30", "31-35"] * 40, name="age")
    with pytest.raises(NerveError, match=r"column age holds bands of years \('26-30', '31-35'\)"):
        prepare_participants(cohort, Protocol(targets="other", covariates="age"))
    table = check_cohort(cohort).table.set_index("check")
    assert table.loc["covariate age", "verdict"] == "warning"
    prepare_participants(cohort, Protocol(targets="other"))


def test_a_confirmed_column_must_exist():
    with pytest.raises(NerveError, match="there is no column 'scor'"):
        prepare_participants(
            with_codes(lambda rng: rng.normal(size=80)),
            Protocol(targets="score", confirmed_values="scor"),
        )
