"""A probe that is kept predicts new participants as the evaluation does, from a folder that holds none."""

import json

import numpy as np
import pytest
from tests.evaluation.conftest import predict
from tests.evaluation.test_transfer import planted
from typer.testing import CliRunner

from nerve import Cohort, KeptModel, NerveError, Protocol
from nerve._utils.files import read_tsv
from nerve.cli import app
from nerve.methods.pca import PrincipalComponents
from nerve.methods.raw import RawFC
from nerve.methods.tangent import TangentSpace

pytestmark = pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning")


@pytest.fixture(scope="module")
def here():
    cohort = planted(90, 1, "here")
    cohort.participants["third"] = np.resize(["a", "b", "c"], 90)
    return cohort


@pytest.fixture(scope="module")
def there():
    cohort = planted(40, 2, "there", np.arange(8)[::-1])
    cohort.participants["third"] = np.resize(["a", "b", "c"], 40)
    return cohort


@pytest.mark.slow
@pytest.mark.parametrize(("features", "encoder", "kernel"), [
    ("raw", RawFC(), "correlation"), ("raw", RawFC(), "cosine"), ("raw", RawFC(), "linear"),
    ("pca", PrincipalComponents(6), "correlation"), ("tangent", TangentSpace(), "linear"),
])  # fmt: skip
def test_predictions_are_those_of_an_evaluation_on_the_other_cohort(
    here, there, tmp_path, features, encoder, kernel
):
    options = {
        "targets": "score,group,third",
        "covariates": "age,site",
        "kernel": kernel,
        "n_components": 6,
    }
    table = predict(features, here, test=there, **options)
    KeptModel(encoder, Protocol(**options)).fit(here).save(tmp_path / "probe")
    said = KeptModel.load(tmp_path / "probe").predict(there)
    both = table.merge(
        said, left_on=["participant", "target"], right_on=["participant_id", "target"]
    )
    assert len(both) == len(table)
    assert both["beyond_covariates"].to_numpy() == pytest.approx(
        both["predicted_x"].to_numpy(), abs=2e-4
    )
    # in the units of the target: the error is that of what is left after covariates
    assert (both["observed_raw"] - both["predicted_y"]).to_numpy() == pytest.approx(
        (both["observed"] - both["predicted_x"]).to_numpy(), abs=2e-4
    )
    score = said[said["target"] == "score"].set_index("participant_id")["predicted"]
    truth = there.participants.set_index("participant_id")["score"]
    assert np.corrcoef(score, truth[score.index])[0, 1] > 0.8


def test_a_site_that_is_a_number_is_a_category_as_in_the_evaluation(here, there, tmp_path):
    """Numbers are names here: as a covariate, site 7 is no larger than site 3."""
    numbered = []
    for cohort in (here, there):
        table = cohort.participants.assign(site=np.resize([3, 7, 5], len(cohort)))
        numbered.append(Cohort(cohort.connectivity, table, cohort.parcellation, name=cohort.name))
    options = {"targets": "score", "covariates": "age,site", "site": "site"}
    table = predict("raw", numbered[0], test=numbered[1], **options)
    KeptModel(RawFC(), Protocol(**options)).fit(numbered[0]).save(tmp_path / "probe")
    said = KeptModel.load(tmp_path / "probe").predict(numbered[1])
    both = table.merge(
        said, left_on=["participant", "target"], right_on=["participant_id", "target"]
    )
    assert len(both) == len(table)
    assert both["beyond_covariates"].to_numpy() == pytest.approx(
        both["predicted_x"].to_numpy(), abs=2e-4
    )


def test_classes_are_named(here, there):
    said = KeptModel(RawFC(), Protocol(targets="group,third")).fit(here).predict(there)
    group = said[said["target"] == "group"]
    assert (group["class"].to_numpy() == there.participants["group"].to_numpy()).mean() > 0.8
    assert set(said.loc[said["target"] == "third", "class"]) <= {"a", "b", "c"}
    assert set(said.loc[said["target"] == "third: a", "class"]) <= {"a", "others"}


def test_protocols_and_cohorts_that_cannot_be_used_are_refused_in_a_sentence(here, there, tmp_path):
    for options in (
        {"kernel": "rbf"},
        {"combat": True, "site": "site"},
        {"regress_features": True},
    ):
        with pytest.raises(NerveError, match=f"cannot have .*{next(iter(options)).split('=')[0]}"):
            KeptModel(RawFC(), Protocol(targets="score", **options)).fit(here)
    probe = KeptModel(RawFC(), Protocol(targets="score", covariates="age")).fit(here)
    probe.save(tmp_path / "probe")
    with pytest.raises(NerveError, match="already holds a kept model"):
        probe.save(tmp_path / "probe")
    table = there.participants

    def other(participants=table, parcellation=there.parcellation, **more):
        return Cohort(there.connectivity, participants, parcellation, name="there", **more)

    with pytest.raises(NerveError, match="age"):
        probe.predict(other(table.drop(columns="age")))
    with pytest.raises(NerveError, match="'age' holds other values, expected numbers"):
        probe.predict(other(table.assign(age="old")))
    strange = there.parcellation.to_table().assign(label=[f"x{i}" for i in range(8)])
    with pytest.raises(NerveError, match="r0"):
        probe.predict(other(parcellation=type(there.parcellation).from_table(strange, name="x")))
    tangent = KeptModel(TangentSpace(), Protocol(targets="score")).fit(here)
    with pytest.raises(NerveError, match="partial"):
        tangent.predict(other(measure="partial"))


@pytest.mark.parametrize(
    "change", [{"format": 9}, {"targets": ["a", "b"]}, {"regressions": [{}]}, {"kernel": "rbf"}]
)
def test_a_changed_probe_is_refused(here, tmp_path, change):
    KeptModel(RawFC(), Protocol(targets="score")).fit(here).save(tmp_path / "probe")
    path = tmp_path / "probe" / "probe.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(NerveError):
        KeptModel.load(tmp_path / "probe")


@pytest.mark.slow
def test_the_command_line_keeps_a_probe_and_predicts_by_it(here, there, tmp_path, monkeypatch):
    monkeypatch.setattr("nerve.report.page.write_report", lambda folder, *_: folder)
    for one in (here, there):
        one.save(tmp_path / one.name)
    words = ["evaluate", str(tmp_path / "here"), "--targets", "score", "--covariates", "age", "--n-folds", "5",
             "--n-bootstrap", "20", "--out", str(tmp_path / "out"), "--save-model",
             str(tmp_path / "probe")]  # fmt: skip
    refused = CliRunner().invoke(app, [*words, "--features", "raw,pca"])
    assert "expected one of --features" in str(refused.exception)
    assert not (tmp_path / "out").exists()
    done = CliRunner().invoke(app, [*words, "--features", "tangent"])
    assert done.exit_code == 0, done.output
    said = CliRunner().invoke(
        app, ["predict", *(str(tmp_path / name) for name in ("probe", "there", "said.tsv"))]
    )
    assert said.exit_code == 0, said.output
    table = read_tsv(tmp_path / "said.tsv")
    wanted = (
        KeptModel(TangentSpace(), Protocol(targets="score", covariates="age"))
        .fit(here)
        .predict(there)
    )
    assert table["predicted"].to_numpy() == pytest.approx(wanted["predicted"].to_numpy())
    everything = b"".join(
        one.read_bytes() for one in (tmp_path / "probe").rglob("*") if one.is_file()
    )
    assert b"sub-0" not in everything


def test_rare_levels_and_dates_of_covariates_are_not_kept_and_count_as_the_average(
    here, there, tmp_path
):
    cohort = here.subset(np.arange(len(here)))
    cohort.participants["clinic"] = ["north", "south"] * 42 + ["of Ann"] * 4 + ["1987-06-05"] * 2
    probe = KeptModel(RawFC(), Protocol(targets="score", covariates="clinic")).fit(cohort)
    text = (probe.save(tmp_path / "probe") / "probe.json").read_text("utf-8")
    assert "north" in text
    assert "Ann" not in text
    assert "1987" not in text
    new = there.subset([0, 1])
    new.participants["clinic"] = ["of Ann", None]
    twins = new.connectivity
    twins[1] = twins[0]
    predicted = probe.predict(new)["predicted"]
    assert predicted[0] == pytest.approx(predicted[1])


def test_a_covariate_whose_levels_no_participants_share_is_refused(here):
    cohort = here.subset(np.arange(len(here)))
    cohort.participants["scanned"] = [f"1987-06-{1 + i % 28:02}" for i in range(len(here))]
    with pytest.raises(
        NerveError,
        match="covariate 'scanned': no value of it is held by 5 participants, or all are",
    ):
        KeptModel(RawFC(), Protocol(targets="score", covariates="scanned")).fit(cohort)
