"""Cohorts of several atlases brought into one: never unasked, and always said."""

import json
import re
import shlex
import shutil
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import nerve
from nerve._utils.errors import NerveError, NerveWarning, OtherRegions
from nerve.cli import app
from nerve.core.training import _Trainer
from nerve.data.cohort import Cohort
from nerve.data.common_space import (
    bring_together,
    describe_meeting,
    meeting_sentences,
    reachable_parcellation,
)
from nerve.data.parcellation import load_parcellation
from nerve.data.resampling_weights import is_cortical
from nerve.methods.runs import embed_file, pretrain
from nerve.methods.tangent import TangentSpace


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The same population twice, in two atlases: other participants, ages planted in both."""
    folder = tmp_path_factory.mktemp("cohorts")
    for number, (name, atlas) in enumerate({"a": "schaefer200-17", "b": "schaefer100-17"}.items()):
        cohort = nerve.simulate_cohort(40, atlas, 60, name=name, seed=number, keep_timeseries=False)
        cohort.save(folder / name)
    return folder


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_resample_writes_a_cohort_a_table_and_a_figure(folders, tmp_path):
    figure = tmp_path / "space.svg"
    result = run(
        "resample", folders / "a", tmp_path / "out", "--parcellation", "schaefer100-17",
        "--figure", figure,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "schaefer200-17 (200 regions) → schaefer100-17 (100 regions)" in result.output
    cohort = Cohort.load(tmp_path / "out")
    assert cohort.parcellation.name == "schaefer100-17"
    expected = Cohort.load(folders / "a").resample("schaefer100-17")
    assert np.array_equal(cohort.connectivity, expected.connectivity)
    table = pd.read_csv(tmp_path / "out" / "resampling.tsv", sep="\t")
    assert table["label"].tolist() == list(cohort.parcellation.labels)
    assert figure.read_text().startswith("<?xml")


def test_the_flat_figure_is_drawn_without_nilearn(folders, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nilearn.plotting", None)
    figure = tmp_path / "space.svg"
    result = run(
        "resample", folders / "a", tmp_path / "out", "--parcellation", "schaefer100-17",
        "--figure", figure,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "x (mm)" in figure.read_text()


@pytest.fixture(scope="module")
def models(folders, tmp_path_factory):
    """A run and a kept model, both of cohort b and its 100 regions."""
    folder = tmp_path_factory.mktemp("models")
    pretrain(
        [folders / "b"], folder / "run", preset="small", assignments=["epochs=0"], device="cpu"
    )
    protocol = nerve.Protocol(targets="age", motion="none")
    nerve.KeptModel(TangentSpace(), protocol).fit(Cohort.load(folders / "b")).save(folder / "kept")
    return folder


MEETINGS = {  # a command that meets other regions → what its refusal says to type
    "pretrain {a} {b} --out {out}/run --preset small --set epochs=0 --device cpu":
        "--parcellation schaefer100-17",
    "evaluate {a} --test {b} --features raw --targets age --motion none --n-folds 3 --out {out}/r":
        "--parcellation schaefer100-17",
    "evaluate {a} --features {run} --targets age --motion none --n-folds 3 --out {out}/r":
        "--parcellation schaefer100-17",
    "embed {run} {a} {out}/a.tsv --device cpu": "--resample",
    "predict {kept} {a} {out}/a.tsv": "--resample",
    "check {a} --model {run}": "nerve resample",
    "interpret {run} {a} --out {out}/maps --device cpu": "nerve resample",
    "run {a} --targets age --motion none --n-folds 3 --model {run} --out {out}/r": "nerve resample",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("command", MEETINGS, ids=lambda command: command.split(" --")[0])
@pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning")
def test_nobody_is_resampled_unasked_and_the_refusal_says_what_to_type(
    folders, models, tmp_path, undrawn, command
):
    """What stands in the refusal is typed as it is, and then the command works."""
    shutil.copytree(folders / "a", tmp_path / "a")
    names = {"a": tmp_path / "a", "b": folders / "b", "out": tmp_path}
    names |= {"run": models / "run", "kept": models / "kept"}
    words = command.format(**names).split()
    refused = run(*words)
    assert isinstance(refused.exception, OtherRegions), refused.output
    assert "Nothing is resampled unasked" in str(refused.exception)
    [to_type] = re.findall("`([^`]+)`", str(refused.exception))
    assert to_type.startswith(MEETINGS[command])
    if to_type.startswith("nerve "):
        first = shlex.split(to_type)[1:]
        done = run(*first)
        assert done.exit_code == 0, done.output
        words = [first[2] if word == str(tmp_path / "a") else word for word in words]
    else:
        words += shlex.split(to_type)
    done = run(*words)
    assert done.exit_code == 0, f"{words}\n{done.output}\n{done.exception}"


def test_the_regions_that_are_named_can_be_reached_by_all(folders, tmp_path):
    """Of an atlas with the subcortex and one without, the one without; of one without networks, the other."""
    whole = load_parcellation("schaefer100-17+aseg19")
    cortex = load_parcellation("schaefer200-17")
    assert reachable_parcellation([whole, cortex], [whole, cortex]) == cortex
    with pytest.raises(NerveError, match="19 of 119 regions have no region of schaefer200-17"):
        reachable_parcellation([cortex], [whole])
    plain = load_parcellation("cc200")
    plain = plain.subset(np.flatnonzero(is_cortical(plain)), name="cc200")
    nerve.simulate_cohort(12, plain, 40, name="plain").save(tmp_path / "plain")
    words = ["pretrain", folders / "a", tmp_path / "plain", "--out", tmp_path / "run"]
    assert "`--parcellation schaefer200-17`" in str(run(*words).exception)


def test_a_model_of_regions_that_cannot_be_reached_says_so(folders, tmp_path):
    whole = nerve.simulate_cohort(12, "schaefer100-17+aseg19", 40, name="whole")
    options = {"preset": "small", "assignments": ["epochs=0"], "device": "cpu"}
    pretrain([whole], tmp_path / "run", **options)
    refused = run("embed", tmp_path / "run", folders / "a", tmp_path / "a.tsv", "--device", "cpu")
    assert "It cannot be resampled either" in str(refused.exception)
    assert "19 of 119 regions have no region of schaefer200-17" in str(refused.exception)


def test_a_table_is_named_where_regions_have_no_name(tmp_path):
    """A cohort with some regions of an atlas: its own table stands for them on the command line."""
    some = load_parcellation("schaefer100-17")
    some = some.subset(np.arange(0, 100, 2), name="schaefer100-17")
    nerve.simulate_cohort(12, some, 40, name="some").save(tmp_path / "some")
    nerve.simulate_cohort(12, "schaefer200-17", 40, name="more").save(tmp_path / "more")
    words = ["pretrain", tmp_path / "some", tmp_path / "more", "--out", tmp_path / "run"]
    [to_type] = re.findall("`([^`]+)`", str(run(*words).exception))
    assert to_type == f"--parcellation {tmp_path / 'some' / 'regions.tsv'}"
    options = ["--preset", "small", "--set", "epochs=0", "--device", "cpu"]
    done = run(*words, *options, *shlex.split(to_type))
    assert done.exit_code == 0, done.output
    assert "untrained, with its initial weights" in done.output


def test_a_pool_of_two_atlases_is_trained_used_and_recorded(folders, tmp_path):
    cohorts = [folders / "a", folders / "b"]
    options = {"preset": "small", "assignments": ["epochs=1"], "device": "cpu"}
    encoder = pretrain(cohorts, tmp_path / "run", parcellation="schaefer100-17", **options)
    assert encoder.parcellation_.name == "schaefer100-17"
    assert encoder.data_["cohorts"] == {"a": 40, "b": 40}
    assert encoder.data_["resampled"] == {"a": "schaefer200-17 → schaefer100-17"}
    assert "Resampled from other regions: a" in (tmp_path / "run" / "README.md").read_text()
    with pytest.raises(NerveError, match=r"cohort.resample\("):
        embed_file(tmp_path / "run", folders / "a", tmp_path / "a.tsv", device="cpu")
    with pytest.warns(NerveWarning, match="was resampled.*group means correlate by"):
        values = embed_file(
            tmp_path / "run", folders / "a", tmp_path / "a.tsv", device="cpu", resample=True
        )
    carried = Cohort.load(folders / "a").resample("schaefer100-17")
    assert np.array_equal(
        values, nerve.NERVE.load(tmp_path / "run", device="cpu").transform(carried)
    )


def test_a_cohort_of_the_model_s_regions_is_not_resampled(folders, tmp_path, recwarn):
    options = {"preset": "small", "assignments": ["epochs=0"], "device": "cpu"}
    pretrain([folders / "b"], tmp_path / "run", **options)
    with_option = embed_file(
        tmp_path / "run", folders / "b", tmp_path / "b.tsv", device="cpu", resample=True
    )
    without = embed_file(tmp_path / "run", folders / "b", tmp_path / "c.tsv", device="cpu")
    assert np.array_equal(with_option, without)
    assert not [warning for warning in recwarn if "resampled" in str(warning.message)]


def test_evaluate_says_what_was_resampled(folders, tmp_path, unpainted):
    result = run(
        "evaluate", folders / "a", "--test", folders / "b", "--features", "raw", "--targets",
        "age", "--motion", "none", "--n-folds", 3, "--parcellation", "schaefer100-17",
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    protocol = json.loads((tmp_path / "out" / "protocol.json").read_text())
    meeting = protocol["resampling"]
    assert list(meeting["resampled"]) == ["a"]
    first, other, r = meeting["correlations"][0]
    means = [
        np.asarray(cohort).mean(axis=0)[np.triu_indices(100, 1)]
        for cohort in bring_together(
            [Cohort.load(folders / name) for name in "ab"], "schaefer100-17"
        )
    ]
    assert (first, other) == ("a", "b")
    assert r == pytest.approx(np.corrcoef(means)[0, 1], abs=1e-3)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Cohort a was resampled: schaefer200-17" in page
    assert "Cohorts in a common atlas" in page


def test_cohorts_of_one_atlas_have_nothing_to_say(folders):
    cohort = Cohort.load(folders / "b")
    assert meeting_sentences(describe_meeting([cohort, cohort])) == []


def test_a_low_correlation_of_means_is_said():
    summary = {
        "source": "x", "target": "y", "method": "centres", "width_mm": 7.0, "median_nearest_mm": 5.0,
        "largest_nearest_mm": 9.0, "median_n_effective": 2.0, "n_target": 3, "n_source": 4, "n_unused": 0,
    }  # fmt: skip
    description = {"resampled": {"a": summary}, "correlations": [["a", "b", 0.3], ["b", "c", 0.2]]}
    *_, last = meeting_sentences(description)
    assert "group means of a and b correlate by 0.30, expected 0.7 or more" in last


@pytest.mark.slow
def test_a_pool_is_resumed_bit_for_bit(folders, tmp_path, monkeypatch):
    """A pool of two atlases that was killed after three steps ends with the weights of one that was not."""
    cohorts = [folders / "a", folders / "b"]
    options = {
        "preset": "small",
        "assignments": ["epochs=2", "checkpoint_seconds=0"],
        "device": "cpu",
        "parcellation": "schaefer100-17",
    }
    advance = _Trainer._advance
    steps = []

    def count(self, rows, batch):
        steps.append(rows)
        return advance(self, rows, batch)

    def die_after_three(self, rows, batch):
        if len(steps) == 3:
            raise RuntimeError("killed")
        return count(self, rows, batch)

    monkeypatch.setattr(_Trainer, "_advance", count)
    whole = pretrain(cohorts, tmp_path / "whole", **options)
    n_steps = len(steps)
    steps.clear()
    monkeypatch.setattr(_Trainer, "_advance", die_after_three)
    with pytest.raises(RuntimeError, match="killed"):
        pretrain(cohorts, tmp_path / "killed", **options)
    steps.clear()
    monkeypatch.setattr(_Trainer, "_advance", count)
    resumed = pretrain(cohorts, tmp_path / "killed", resume=True, **options)
    assert len(steps) == n_steps - 3  # what was done before is not done again
    tensors = resumed.tensors()
    for name, tensor in whole.tensors().items():
        assert np.array_equal(tensor.numpy(), tensors[name].numpy()), name
