"""Training curves reach other programs by callbacks, which see what the history holds."""

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nerve._utils.errors import NerveError
from nerve._utils.signals import TrainingStopped
from nerve.data.simulate import simulate_cohort
from nerve.methods import training_logs
from nerve.methods.nerve import NERVE
from nerve.methods.runs import pretrain

SETTINGS = {"dim": 16, "epochs": 3, "n_components": 4, "device": "cpu"}


@pytest.fixture(scope="module")
def cohort():
    return simulate_cohort(20, parcellation="schaefer100-17", timepoints=60)


def read_curves(folder):
    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def test_a_callback_gets_the_rows_of_the_history_and_cannot_change_them(cohort):
    records = []

    def keep_and_spoil(record):
        records.append(dict(record))
        record.clear()

    encoder = NERVE.from_preset("small", **SETTINGS).fit(cohort, callbacks=[keep_and_spoil])
    assert records == encoder.history_.to_dict("records")
    assert [record["epoch"] for record in records] == [1, 2, 3]


def test_callbacks_change_no_weight(cohort):
    watched = NERVE.from_preset("small", **SETTINGS).fit(cohort, callbacks=[lambda record: None])
    alone = NERVE.from_preset("small", **SETTINGS).fit(cohort)
    np.testing.assert_array_equal(watched.transform(cohort), alone.transform(cohort))


@pytest.mark.slow
def test_tensorboard_shows_the_curves_of_the_history(cohort, tmp_path):
    assignments = [f"{name}={value}" for name, value in SETTINGS.items()]
    encoder = pretrain(
        [cohort], tmp_path, preset="small", assignments=assignments, log="tensorboard"
    )
    curves = read_curves(tmp_path / "tensorboard")
    assert set(curves) == set(encoder.history_) - {"epoch", "step"}
    for name, points in curves.items():
        steps, values = zip(*points, strict=True)
        assert list(steps) == encoder.history_["step"].tolist()
        np.testing.assert_allclose(values, encoder.history_[name], rtol=1e-6)


@pytest.mark.slow
def test_a_resumed_run_goes_on_with_the_same_curves(cohort, tmp_path):
    """The epoch that was drawn before the stop, but not kept, is drawn once."""

    def stop_in_the_second_epoch(record):
        if record["epoch"] == 2:
            raise TrainingStopped("stopped", 2)

    curves = training_logs.TensorBoardCurves(tmp_path / "tensorboard")
    encoder = NERVE.from_preset("small", checkpoint_seconds=0, **SETTINGS)
    with pytest.raises(TrainingStopped):
        encoder.fit(cohort, run_dir=tmp_path / "run", callbacks=[curves, stop_in_the_second_epoch])
    again = training_logs.TensorBoardCurves(tmp_path / "tensorboard")
    encoder = NERVE.from_preset("small", checkpoint_seconds=0, **SETTINGS)
    encoder.fit(cohort, run_dir=tmp_path / "run", resume=True, callbacks=[again])
    drawn = read_curves(tmp_path / "tensorboard")["training_loss"]
    assert [step for step, _ in drawn] == encoder.history_["step"].tolist()


def test_without_tensorboard_the_extra_is_named_before_anything_is_trained(cohort, monkeypatch):
    monkeypatch.setattr(training_logs, "find_spec", lambda name: None)
    with pytest.raises(NerveError, match=r"pip install 'nerve-fc\[tensorboard\]'"):
        pretrain([cohort], "nowhere", log="tensorboard")


def test_another_program_is_refused_with_those_that_are_known(cohort):
    with pytest.raises(NerveError, match="expected one of 'tensorboard'"):
        pretrain([cohort], "nowhere", log="tensorbord")
