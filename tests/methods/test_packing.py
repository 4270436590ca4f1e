"""The view of a cohort is computed once, kept beside its matrices, and never taken for that of other matrices."""

from shutil import rmtree

import numpy as np
import pandas as pd
import pytest

from nerve import Cohort
from nerve.methods.nerve import NERVE
from nerve.methods.packing import ViewedCohort
from nerve.methods.tangent import TangentSpace
from nerve.parcellation import Parcellation
from nerve.simulate import simulate_cohort
from nerve.views import TangentView

TABLE = pd.DataFrame({"label": [f"r{i}" for i in range(20)], "network": ["A"] * 8 + ["B"] * 12})
REGIONS = Parcellation.from_table(TABLE, name="twenty")


@pytest.fixture(scope="module")
def people() -> Cohort:
    """Seventy participants: more than are computed at a time."""
    return simulate_cohort(70, REGIONS, 60, keep_timeseries=False, seed=3)


@pytest.fixture
def folder(people, tmp_path):
    return people.save(tmp_path / "cohort")


def encoder(**options) -> NERVE:
    return NERVE(preset="small", view="tangent", dim=8, epochs=1, device="cpu", n_components=4, **options)


def forbid(monkeypatch) -> None:
    def apply(self, fc):
        raise AssertionError("the view was computed again")

    monkeypatch.setattr(TangentView, "apply", apply)


@pytest.mark.slow
def test_what_pretraining_computed_is_read_by_the_next_process(people, folder, monkeypatch):
    fitted = encoder().fit(Cohort.load(folder))
    in_memory = encoder().fit(people)
    expected = in_memory.transform(people)
    forbid(monkeypatch)
    np.testing.assert_array_equal(fitted.transform(Cohort.load(folder)), expected)
    with pytest.raises(AssertionError, match="computed again"):
        fitted.transform(people)


@pytest.mark.slow
def test_the_reference_row_of_the_same_view_reads_it_too(people, folder, monkeypatch):
    expected = TangentSpace().fit(people).transform(people)
    encoder().fit(Cohort.load(folder))
    row = TangentSpace().fit(Cohort.load(folder))
    forbid(monkeypatch)
    np.testing.assert_array_equal(row.transform(Cohort.load(folder)), expected)


@pytest.mark.slow
def test_changed_matrices_another_view_and_some_participants_are_computed(people, folder):
    fitted = encoder().fit(Cohort.load(folder))
    view = fitted.view_
    assert ViewedCohort(Cohort.load(folder), view).entries is not None
    assert ViewedCohort(Cohort.load(folder), TangentView(0.3).fit(people.connectivity)).entries is None
    assert ViewedCohort(Cohort.load(folder)[:60], view).entries is None
    matrices = np.load(folder / "connectivity.npy")
    np.save(folder / "connectivity.npy", matrices[::-1])
    turned = Cohort.load(folder)
    assert ViewedCohort(turned, view).entries is None
    np.testing.assert_allclose(fitted.transform(turned), fitted.transform(people)[::-1], atol=1e-5)


def test_two_are_kept_and_a_damaged_one_is_not_read(people, folder):
    for shrinkage in (0.2, 0.3, 0.4):
        viewed = ViewedCohort(Cohort.load(folder), TangentView(shrinkage).fit(people.connectivity))
        viewed.keep()
    assert len(list((folder / ".views").iterdir())) == 2
    whole = viewed.matrices(np.arange(3))
    viewed.path.write_bytes(viewed.path.read_bytes()[:-8])
    again = ViewedCohort(Cohort.load(folder), viewed.view)
    assert again.entries is None
    np.testing.assert_array_equal(again.matrices(np.arange(3)), whole)


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_to_costs_only_time(people, folder):
    (folder / ".views").write_text("in the way")
    np.testing.assert_array_equal(
        encoder().fit(Cohort.load(folder)).transform(Cohort.load(folder)), encoder().fit(people).transform(people)
    )
    assert (folder / ".views").read_text() == "in the way"


@pytest.mark.slow
def test_a_cohort_with_kept_views_is_still_nerves_own(people, folder):
    encoder().fit(Cohort.load(folder))
    before = Cohort.load(folder).fingerprint
    assert before == people.fingerprint
    assert not Cohort.load(folder).changes
    people.save(folder, overwrite=True)
    assert not (folder / ".views").exists()


def test_nothing_is_kept_where_a_folder_is_gone(people, folder):
    """That of `nerve.read_cohort` is, as soon as the cohort is returned: it came back to hold what was to be kept."""
    cohort = Cohort.load(folder)
    rmtree(folder)
    np.testing.assert_array_equal(encoder().fit(cohort).transform(cohort), encoder().fit(people).transform(people))
    assert not folder.exists()
