"""The page: complete, true, without identifiers, safe from hostile text; made of one folder and nothing outside it."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from folders import Made, line, rows, write_folder

from nerve.checks import NerveError
from nerve.cohort import Cohort
from nerve.evaluation.results import read_results, write_results
from nerve.files import read_tsv, write_json, write_text, write_tsv
from nerve.report.figures import FIGURES
from nerve.report.load import load_results
from nerve.report.page import page, write_report
from nerve.report.results import Results
from nerve.report.sections import BUDGET, cohorts_table, figures_of
from nerve.report.words import citations


class Reader(HTMLParser):
    """Tags, ids and text of a page, as a browser would find them."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.ids, self.text, self.addresses, self.handlers = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href"):
                self.addresses.append(value)
            if name.startswith("on"):
                self.handlers.append(name)

    def handle_data(self, data):
        self.text.append(data)

    @property
    def words(self):
        return " ".join(self.text)


def copied(experiment, folder, *left):
    """A copy to change, without the maps of the brain, which take seconds to draw."""
    return Path(shutil.copytree(experiment, folder, ignore=shutil.ignore_patterns("interpretation", *left)))


def read(folder, cohorts=None):
    return Reader(write_report(folder, cohorts).read_text("utf-8"))


@pytest.fixture(scope="module")
def html(experiment_page):
    return experiment_page.read_text("utf-8")


def test_every_section_and_figure_is_on_the_page(html):
    reader = Reader(html)
    sections = {"methods", "cohorts", "pretraining", "prediction", "comparison", "interpretation", "provenance"}
    drawable = {f"figure-{name}" for name in FIGURES if name != "likeness"}  # no model came from elsewhere
    assert sections | drawable <= set(reader.ids)
    assert "could not be drawn" not in html
    assert len(reader.ids) == len(set(reader.ids))


def test_page_is_small_and_asks_for_nothing(html):
    assert len(html.encode()) < 5_000_000
    assert all(address.startswith(("#", "data:")) for address in Reader(html).addresses)


@pytest.mark.slow
def test_figures_that_would_not_fit_become_images_and_pages_are_reproducible(tmp_path, monkeypatch):
    made = Made(cohorts={"alone": 12}, targets=["iq"], rows=rows()[:2], interpretation=False)
    plain = load_results(write_folder(tmp_path, made))
    whole = page(plain)
    assert page(plain) == whole
    monkeypatch.setattr("nerve.report.sections.BUDGET", len(whole) // 2)
    small = page(plain)
    assert len(small) < len(whole)
    assert "data:image/png" in small
    assert small.count("<figure") == whole.count("<figure")


def test_no_participant_and_no_folder_is_named(html, experiment):
    ids = pd.read_csv(experiment / "predictions.tsv", sep="\t")["participant"].unique()
    assert not [one for one in ids if one in html]
    assert "sub-gone" not in html
    assert str(experiment) not in html
    assert "/data/study" not in html
    assert "[participant]: one region has no data" in Reader(html).words


def test_exclusions_failures_and_warnings_are_shown(html):
    words = Reader(html).words
    assert "too much motion" in words
    assert "train BrainGNN alpha" in words
    assert "failed" in words


def test_numbers_of_the_paper_table_are_those_of_the_scores(html, experiment):
    scores = read_tsv(experiment / "scores.tsv")
    mine = scores[(scores["cohort"] == "alpha") & (scores["target"] == "iq") & (scores["row"] == "raw-0")]
    assert f'data-sort="{mine["r"].item()}"' in html


def test_the_page_reads_as_prose_and_heads_are_words(html):
    words = Reader(html).words
    assert "`" not in words
    assert "nerve check" not in words or "<code>nerve" in html
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', html)
    assert heads
    assert not [head for head in heads if "_" in head and head not in ("p_factor",)]
    assert not re.search(r"<p>[^<]*:</p>\s*(?!<ul>)<", html)  # words that lead to a list, over nothing
    assert not re.search(r"\b(people|person)\b", words)


def test_the_methods_text_is_true_of_the_rows(results):
    said = "\n".join(results.methods_text)
    assert "up to 64 principal components" in said
    assert "preset small, fc view, 256 numbers per participant" in said
    assert "pretrained without labels on the pooled participants of Alpha." in said
    gamma = next(text for text in results.methods_text if text.startswith("Gamma: ") and "mask_ratio=0.5" in text)
    assert "pretrained on other participants (pretrain_scope: other_people)" in gamma
    assert "including those tested" not in gamma
    assert "age, sex were removed" in said


def test_covariates_are_said_by_cohort(tmp_path):
    folder = write_folder(tmp_path, Made(interpretation=False, stored=False))
    found = read_results(folder)
    found.about["protocols"]["gamma"]["covariates"] = ["age", "mean_fd"]
    own = {name: value for name, value in found.about.items() if name not in ("format", "id", "files")}
    write_results(folder, replace(found, about=own))
    texts = load_results(folder).methods_text
    assert any(text.startswith("Alpha: ") and "age, sex were removed" in text for text in texts)
    assert any(text.startswith("Gamma: ") and "age, mean_fd were removed" in text for text in texts)


def test_only_methods_that_are_there_are_cited(results):
    def cited(kept, **about):
        mine = results.rows[results.rows["method"].isin(kept)]
        return " ".join(work.text for work in citations(replace(results, rows=mine, about={**results.about, **about})))

    assert "Network-Aware Bilinear Tokenization" in cited(["nerve", "raw"])
    assert "Network-Aware Bilinear Tokenization" not in cited(["raw", "pca"])
    theirs = {"raw": "Somebody (1999).", "gate": "Not here (2000)."}
    assert "Somebody (1999)." in cited(["raw"], citations=theirs)
    assert "Not here" not in cited(["raw"], citations=theirs)


def test_hostile_text_stays_text(hostile_page):
    reader = Reader(hostile_page.read_text("utf-8"))
    assert reader.tags.count("script") == 1
    assert not reader.handlers
    assert "x" not in reader.addresses
    assert "<script>window.pwned=1</script>" in reader.words  # shown, as text
    assert "could not be drawn" not in reader.words


@pytest.mark.parametrize("n", [1, 3])
def test_few_participants_one_target_and_one_method_still_give_a_page(tmp_path, n):
    made = Made(cohorts={"alone": n}, targets=["iq"], rows=rows()[1:2], interpretation=False)
    words = read(write_folder(tmp_path, made)).words
    assert "could not be drawn" not in words
    assert "nothing to compare" in words
    assert "ten participants or more" in words  # the mean of fewer would show them


# ---- one layout, and nothing outside the folder


def test_without_the_cohort_the_page_says_which_option_adds_its_figures(tmp_path, experiment, results):
    folder = copied(experiment, tmp_path / "e", "cohorts")
    drawn, missing = figures_of("cohorts", load_results(folder))
    assert not drawn
    assert any("`nerve report DIR --cohort PATH`" in sentence for sentence in missing)
    assert [row[:2] for row in cohorts_table(load_results(folder)).rows] == [["Alpha", "40"], ["Gamma", "30"]]
    named = load_results(folder, {"alpha": Cohort.load(experiment / "cohorts" / "alpha")})
    assert [figure.name for figure in figures_of("cohorts", named)[0]] == ["cohort_overview", "group_mean_fc"]


def test_a_cohort_is_known_by_its_fingerprint_and_a_stranger_is_refused(tmp_path, experiment):
    folder, cohort = copied(experiment, tmp_path / "e", "cohorts"), Cohort.load(experiment / "cohorts" / "gamma")
    assert load_results(folder, {"another name": cohort}).cohorts["gamma"].mean is not None
    with pytest.raises(NerveError, match="'delta' was not evaluated here, expected one of alpha, gamma"):
        load_results(folder, {"delta": cohort.subset(range(12))})


@pytest.mark.parametrize("name", ["../outside", "..", "/etc", "a\\b"])
def test_a_cohort_called_by_a_path_opens_nothing(tmp_path, name, monkeypatch):
    made = Made(cohorts={name: 12}, targets=["iq"], rows=rows()[1:2], interpretation=False, stored=False)
    folder = write_folder(tmp_path / "results", made)
    for place in (tmp_path / "outside", tmp_path / "results" / "outside"):
        place.mkdir(parents=True)
        write_json(place / "cohort.json", {})
    monkeypatch.setattr(Cohort, "load", lambda path: pytest.fail(f"opened {path}"))
    assert load_results(folder).cohorts[name].mean is None


def test_a_run_called_by_a_path_and_a_link_out_of_the_folder_are_not_followed(tmp_path, experiment):
    folder = copied(experiment, tmp_path / "e")
    runs = read_tsv(folder / "runs.tsv", dtype=str)
    write_tsv(folder / "runs.tsv", runs.assign(id="../../secret"))
    write_json(tmp_path / "secret" / "manifest.json", {"warnings": ["a secret"]})
    assert "a secret" not in load_results(folder).warnings
    (folder / "interpretation").symlink_to(tmp_path / "secret")
    with pytest.raises(NerveError, match="a link out of the folder"):
        load_results(folder)


@pytest.mark.parametrize("name", ["scores.tsv", "nulls.tsv", "rows.tsv"])
@pytest.mark.parametrize("damage", ["", "of another evaluation"])
def test_a_damaged_or_mixed_folder_is_refused_by_name(tmp_path, experiment, name, damage):
    folder = copied(experiment, tmp_path / "e", "cohorts", "runs")
    (folder / name).write_text(damage) if damage else (folder / name).unlink()
    with pytest.raises(NerveError, match=f"{name}: it is not"):
        write_report(folder)


@pytest.mark.parametrize("old", ["experiment.yaml", "settings.json", "scores.tsv"])
def test_an_unfinished_or_old_folder_is_refused(tmp_path, old):
    write_text(tmp_path / old, "name: begun\n")
    with pytest.raises(NerveError, match=r"there is no protocol\.json, expected a finished evaluation"):
        write_report(tmp_path)


def test_a_training_run_that_has_not_ended(tmp_path):
    write_tsv(tmp_path / "history.tsv", pd.DataFrame({"epoch": [1, 2], "training_loss": [0.2, 0.1]}))
    reader = read(tmp_path)
    assert "figure-loss_curves" in reader.ids
    assert "not finished" in reader.words


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_a_folder_without_results_is_refused(tmp_path, folder):
    with pytest.raises(NerveError, match="expected"):
        write_report(tmp_path / folder)


@pytest.mark.slow
def test_many_targets_and_methods_fit_a_page_that_can_be_mailed(tmp_path, monkeypatch):
    """Tables and the budget of all figures together; `python -m benchmarks waiting` draws them all."""
    monkeypatch.setattr("nerve.report.sections.figures_of", lambda name, results: ([], []))
    many = [row for i in range(60) for row in line(f"m{i}", "nerve", f"Method {i}", "self-supervised")]
    made = Made(cohorts={"alpha": 12}, targets=[f"t{i}" for i in range(30)], rows=many, interpretation=False,
                n_permutations=9)  # fmt: skip
    results = replace(load_results(write_folder(tmp_path, made)), encoders=[])
    assert len(page(results).encode()) + BUDGET < 5_000_000


def test_empty_results_from_a_notebook():
    assert "This folder does not say what was run" in page(Results())


def test_reports_are_made_without_torch():
    code = "import sys, nerve.report.page, nerve.plot; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
