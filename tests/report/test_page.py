"""The page: complete, without identifiers, safe from hostile text, and there even when results are not."""

import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pandas as pd
import pytest
from folders import Made, write_experiment

from nerve.checks import NerveError
from nerve.files import write_json, write_text, write_tsv
from nerve.report.figures import FIGURES
from nerve.report.page import page, write_report
from nerve.report.results import Results


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


@pytest.fixture
def copied(small_experiment, tmp_path):
    """A copy to damage."""
    return shutil.copytree(small_experiment, tmp_path / "e")


@pytest.fixture(scope="module")
def html(experiment_page):
    return experiment_page.read_text("utf-8")


@pytest.mark.slow
def test_every_section_and_figure_is_on_the_page(html):
    reader = Reader(html)
    sections = {"methods", "cohorts", "pretraining", "prediction", "comparison", "interpretation", "provenance"}
    drawable = {f"figure-{name}" for name in FIGURES}
    assert sections | drawable <= set(reader.ids)
    assert "could not be drawn" not in html
    assert len(reader.ids) == len(set(reader.ids))


@pytest.mark.slow
def test_page_is_small_and_asks_for_nothing(html):
    assert len(html.encode()) < 5_000_000
    assert all(address.startswith(("#", "data:")) for address in Reader(html).addresses)


@pytest.mark.slow
def test_figures_that_would_not_fit_become_images_and_pages_are_reproducible(results, monkeypatch):
    for name in FIGURES.keys() - {"cohort_overview", "group_mean_fc", "scatter"}:  # a few will do
        monkeypatch.delitem(FIGURES, name)
    plain = replace(results, interpretation={})
    whole = page(plain)
    assert page(plain) == whole
    monkeypatch.setattr("nerve.report.page.BUDGET", 100_000)
    small = page(plain)
    assert len(small) < len(whole)
    assert "data:image/png" in small
    assert small.count("<figure") == whole.count("<figure")


@pytest.mark.slow
def test_no_participant_and_no_folder_is_named(html, experiment):
    ids = pd.read_csv(experiment / "predictions.tsv", sep="\t")["participant"].unique()
    assert not [one for one in ids if one in html]
    assert "sub-gone" not in html
    assert str(experiment) not in html
    assert "/data/study" not in html
    assert "[participant]: one region has no data" in Reader(html).words


@pytest.mark.slow
def test_exclusions_failures_and_warnings_are_shown(html):
    words = Reader(html).words
    assert "too much motion" in words
    assert "train BrainGNN · alpha" in words
    assert "failed" in words


@pytest.mark.slow
def test_numbers_of_the_paper_table_are_those_of_the_scores(html, experiment):
    scores = pd.read_csv(experiment / "scores.tsv", sep="\t")
    mine = scores[(scores["cohort"] == "alpha") & (scores["target"] == "iq") & (scores["method"] == "Raw FC")]
    assert f'data-sort="{mine["r"].item()}"' in html


@pytest.mark.slow
def test_hostile_text_stays_text(hostile_page):
    reader = Reader(hostile_page.read_text("utf-8"))
    assert reader.tags.count("script") == 1
    assert not reader.handlers
    assert "x" not in reader.addresses
    assert "<script>window.pwned=1</script>" in reader.words  # shown, as text
    assert "could not be drawn" not in reader.words


@pytest.mark.parametrize("people", [1, 2, 3])
def test_few_people_one_target_and_one_method_still_give_a_page(tmp_path, people):
    made = Made(cohorts={"alone": people}, targets=["iq"], methods={"Raw FC": [""]}, interpretation=False)
    folder = write_experiment(tmp_path, made)
    words = Reader(write_report(folder).read_text("utf-8")).words
    assert "could not be drawn" not in words
    assert "nothing to compare" in words


@pytest.mark.usefixtures("unpainted")
def test_no_targets_gives_a_page_that_says_so(copied):
    for name in ("scores.tsv", "predictions.tsv", "comparisons.tsv"):
        (copied / name).unlink()
    words = Reader(write_report(copied).read_text("utf-8")).words
    assert "nothing was predicted" in words
    assert "could not be drawn" not in words


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["", "not\ta table\n1\n2\t3\t4\n", "\x00\x01"])
def test_damaged_tables_cost_their_part_only(copied, damage):
    for name in ("scores.tsv", "runs.tsv", "runs/0001/manifest.json", "runs/0001/history.tsv"):
        write_text(copied / name, damage)
    reader = Reader(write_report(copied).read_text("utf-8"))
    assert "figure-group_mean_fc" in reader.ids
    assert "This page is not complete" in reader.words


@pytest.mark.parametrize("name", ["scores.tsv", "predictions.tsv", "comparisons.tsv", "history.tsv"])
@pytest.mark.parametrize("word", ["NaN", "word", pytest.param("1e400", marks=pytest.mark.slow)])
def test_cells_that_are_no_numbers_are_missing_and_said(copied, name, word, request):
    if word != "1e400":  # which is infinite, and the hardest to paint
        request.getfixturevalue("unpainted")
    path = next(copied.rglob(name))
    table = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)
    for column in table.columns.difference(["cohort", "target", "method", "variant", "method_a", "method_b"]):
        table[column] = word
    write_tsv(path, table)
    words = Reader(write_report(copied).read_text("utf-8")).words
    assert ("are no numbers, and shown as missing" in words) is (word != "1e400")


@pytest.mark.usefixtures("unpainted")
@pytest.mark.parametrize(("name", "column"), [("scores.tsv", "method"), ("comparisons.tsv", "variant_b")])
def test_a_table_without_a_column_is_left_out_and_said(copied, name, column):
    write_tsv(copied / name, pd.read_csv(copied / name, sep="\t").drop(columns=column))
    words = Reader(write_report(copied).read_text("utf-8")).words
    assert f"{name}: there is no column {column}; it is not shown" in words


@pytest.mark.usefixtures("unpainted")
def test_a_cohort_that_has_moved_is_said(copied):
    text = (copied / "experiment.yaml").read_text().replace("/data/", "/moved/")
    write_text(copied / "experiment.yaml", text)
    words = Reader(write_report(copied).read_text("utf-8")).words
    assert "there is no such folder" in words
    assert "Raw FC" in words


def test_a_bare_experiment_that_has_only_begun(tmp_path):
    write_text(tmp_path / "experiment.yaml", "name: begun\ncohorts: {}\nmethods: []\n")
    assert "nothing was predicted" in Reader(write_report(tmp_path).read_text("utf-8")).words


@pytest.mark.usefixtures("unpainted")
def test_a_training_run_that_has_not_ended(tmp_path):
    write_tsv(tmp_path / "history.tsv", pd.DataFrame({"epoch": [1, 2], "training_loss": [0.2, 0.1]}))
    reader = Reader(write_report(tmp_path).read_text("utf-8"))
    assert "figure-loss_curves" in reader.ids
    assert "not finished" in reader.words


@pytest.mark.usefixtures("unpainted")
def test_folder_of_evaluate(tmp_path, experiment):
    for name in ("scores", "predictions", "comparisons"):
        table = pd.read_csv(experiment / f"{name}.tsv", sep="\t")
        write_tsv(tmp_path / f"{name}.tsv", table[table["cohort"] == "alpha"])
    about = {"name": "alpha", "n_participants": 40, "fingerprint": "f00"}
    write_json(tmp_path / "settings.json", {"cohort": about, "settings": {"targets": ["iq"], "seed": 42}})
    write_text(tmp_path / "protocol.md", "# How\n\nWe predicted iq.\n\nFeature sets:\n\n- **raw**: FC.\n")
    reader = Reader(write_report(tmp_path).read_text("utf-8"))
    assert "figure-forest" in reader.ids
    assert "We predicted iq." in reader.words
    assert "f00" in reader.words


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_a_folder_without_results_is_refused(tmp_path, folder):
    with pytest.raises(NerveError, match="expected"):
        write_report(tmp_path / folder)


def test_empty_results_from_a_notebook():
    assert "This folder does not say what was run" in page(Results())


def test_reports_are_made_without_torch():
    code = "import sys, nerve.report.page, nerve.plot; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
