"""A method that needs correlations says so when a cohort holds something else."""

import numpy as np
import pandas as pd
import pytest

from nerve._utils.errors import NerveError
from nerve.data.cohort import Cohort
from nerve.data.connectivity import MEASURES
from nerve.data.parcellation import Parcellation
from nerve.methods import METHODS, method_class

REGIONS = Parcellation(tuple("abcdef"), ("X", "Y") * 3)


def cohort(measure, n=12):
    fc = np.stack(
        [np.corrcoef(x) for x in np.random.default_rng(0).normal(size=(n, 6, 40))]
    ).astype(np.float32)
    return Cohort(
        fc, pd.DataFrame({"participant_id": [f"p{i}" for i in range(n)]}), REGIONS, measure=measure
    )


@pytest.mark.parametrize("name", METHODS)
def test_every_method_says_what_it_needs(name):
    method = method_class(name)
    for measure in MEASURES:
        if measure in method.measures:
            assert method.align_and_check_measure(method(), cohort(measure)).measure == measure
            continue
        with pytest.raises(NerveError, match=f"and {method.__name__} needs Pearson correlations"):
            method().fit(
                cohort(measure), np.arange(12.0)
            ) if method.role == "supervised" else method().fit(cohort(measure))


def test_the_remedies_fit_the_measure():
    with pytest.raises(NerveError, match="--values z"):
        method_class("tangent")().fit(cohort("fisher_z"))
    with pytest.raises(NerveError, match=r"streamline counts, .* raw and pca take any measure"):
        method_class("nerve")().fit(cohort("streamlines"))
    assert method_class("raw")().fit_transform(cohort("streamlines")).shape == (12, 15)


def test_the_measure_stays_with_the_cohort(tmp_path):
    made = cohort("covariance")
    made.save(tmp_path / "c")
    loaded = Cohort.load(tmp_path / "c")
    assert [
        loaded.measure,
        loaded.subset([0, 2]).measure,
        loaded.align(REGIONS.subset([3, 1])).measure,
    ] == ["covariance"] * 3
    assert Cohort.concat([cohort("partial")]).measure == "partial"
    with pytest.raises(NerveError, match="different measures"):
        other = cohort("pearson")
        other.participants["participant_id"] = [f"q{i}" for i in range(12)]
        Cohort.concat([made, other])
    with pytest.raises(NerveError, match="measure of cohort"):
        cohort("tau")
