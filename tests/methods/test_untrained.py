"""`epochs=0` is the untrained control of every self-supervised method: fitted to the participants, without a step."""

import numpy as np
import pytest

from nerve.data.parcellation import Parcellation
from nerve.data.simulate import simulate_cohort
from nerve.methods import METHODS, load_method, make_method, method_class

SELF_SUPERVISED = [name for name in METHODS if method_class(name).role == "self-supervised"]


@pytest.fixture(scope="module")
def cohort():
    networks = tuple("AAAABBBBCCCCDDDD")
    regions = Parcellation(
        tuple(f"{name}{i}" for i, name in enumerate(networks)), networks, name="sixteen"
    )
    return simulate_cohort(16, regions, 40, seed=0)


def test_every_self_supervised_method_of_the_paper_is_here():
    assert {"nerve", "graphmae", "gate", "braingsls", "brainmass"} <= set(SELF_SUPERVISED)


@pytest.mark.slow
@pytest.mark.parametrize("name", SELF_SUPERVISED)
def test_no_step_is_taken_and_the_control_is_saved_like_any_model(name, cohort, tmp_path):
    model = make_method(name, "small", {"epochs": 0}, seed=3, device="cpu").fit(
        cohort, run_dir=tmp_path / "run"
    )
    assert list(model.history_["step"]) == [0]
    again = make_method(name, "small", {"epochs": 0}, seed=3, device="cpu")
    resumed = again.fit(cohort, run_dir=tmp_path / "run", resume=True)
    features = model.transform(cohort)
    assert np.isfinite(features).all()
    np.testing.assert_array_equal(resumed.transform(cohort), features)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(
        load_method(tmp_path / "model", device="cpu").transform(cohort), features
    )
    longer = {"epochs": 4} | (
        {"keep": "last"} if name == "nerve" else {}
    )  # so few show no progress in validation
    trained = make_method(name, "small", longer, seed=3, device="cpu").fit(cohort)
    assert not np.allclose(trained.transform(cohort), features)
