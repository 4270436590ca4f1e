"""Wherever it is started, the program ends with a sentence and not with a traceback."""

import os
import resource
import subprocess
import sys

import pytest

from nerve import simulate_cohort


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    people = simulate_cohort(24, "schaefer100-7", 40, keep_timeseries=False)
    return people.save(tmp_path_factory.mktemp("cohorts") / "cohort")


def run(*words, limit=None, **environment):
    def limit_memory():
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    return subprocess.run(
        [sys.executable, "-m", "nerve", *map(str, words)],
        env=os.environ | environment,
        preexec_fn=limit_memory,
        capture_output=True,
        text=True,
        check=False,
    )


def refused(done, sentence):
    assert done.returncode not in (0, -11), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert sentence in done.stderr, done.stderr


@pytest.mark.parametrize("date", ["nonsense", "1e9", "-5", "9" * 17, "", "٣"])
def test_a_date_that_is_none_is_refused(cohort, date):
    refused(run("check", cohort, SOURCE_DATE_EPOCH=date), "SOURCE_DATE_EPOCH is")


def test_a_date_that_is_one_is_taken(cohort):
    done = run("check", cohort, SOURCE_DATE_EPOCH="1700000000")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set and MASTER_ADDR is not"),
        (
            {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"},
            "WORLD_SIZE is set and MASTER_PORT is not",
        ),
        (
            {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"},
            "WORLD_SIZE is set and RANK is not",
        ),
        ({"WORLD_SIZE": "two"}, "The variable WORLD_SIZE is 'two'"),
        ({"WORLD_SIZE": "2", "RANK": "first"}, "The variable RANK is 'first'"),
    ],
)
def test_half_of_what_torchrun_sets_is_refused(cohort, tmp_path, environment, sentence):
    words = ("pretrain", cohort, "--out", tmp_path / "run", "--preset", "small")
    refused(run(*words, **environment), sentence)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a limit of address space")
def test_little_address_space_is_said(cohort, tmp_path):
    done = run("pretrain", cohort, "--out", tmp_path / "run", limit=800 * 2**20)
    refused(done, "not enough memory")
