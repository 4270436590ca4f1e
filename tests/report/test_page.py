"""The page: complete, true, without identifiers, safe from hostile text; made of one folder and nothing outside it."""

import base64
import io
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from folders import COMPARED, Made, line, rows, with_holding_columns, write_folder
from matplotlib.figure import Figure

from nerve._utils.errors import NerveError
from nerve._utils.files import read_tsv, write_json, write_text, write_tsv
from nerve.data.cohort import Cohort
from nerve.data.simulate import simulate_cohort
from nerve.evaluation.rows import rows_table
from nerve.methods.runs import pretrain
from nerve.report.figures import FIGURES, DrawnFigure
from nerve.report.glossary import TERMS, term_id
from nerve.report.load import cohorts_by_name, load_results
from nerve.report.page import render_page, write_report
from nerve.report.report_data import ReportData
from nerve.report.sections import (
    BUDGET,
    _shrink_to_budget,
    cohort_tables,
    draw_figures,
    map_downloads,
)
from nerve.report.words import citations, methods_text


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
    return Path(
        shutil.copytree(experiment, folder, ignore=shutil.ignore_patterns("interpretation", *left))
    )


def read(folder, cohorts=None):
    return Reader(write_report(folder, cohorts).read_text("utf-8"))


@pytest.fixture(scope="module")
def html(painted):
    return (painted / "report.html").read_text("utf-8")


def test_every_section_and_figure_is_on_the_page(html):
    reader = Reader(html)
    order = [
        "findings",
        "figure-forest",
        "paper-table",
        "prediction",
        "comparison",
        "cohorts",
        "pretraining",
        "interpretation",
        "methods",
        "provenance",
        "glossary",
        "citations",
    ]
    places = [reader.ids.index(name) for name in order]
    assert places == sorted(places)  # what was found comes first, citations last
    assert {f"figure-{name}" for name in FIGURES} <= set(reader.ids)
    assert "could not be made" not in html
    assert len(reader.ids) == len(set(reader.ids))


def test_page_is_small_and_asks_for_nothing(html):
    assert len(html.encode()) < 5_000_000
    assert all(address.startswith(("#", "data:")) for address in Reader(html).addresses)


@pytest.mark.slow
def test_figures_that_would_not_fit_become_images_and_pages_are_reproducible(results, monkeypatch):
    monkeypatch.setattr("nerve.report.figures.SECTIONS", {"pretraining": ("reconstruction_error",)})
    alone = ReportData(encoders=results.encoders)
    whole = render_page(alone)
    assert render_page(alone) == whole
    monkeypatch.setattr("nerve.report.sections.BUDGET", 10_000)
    small = render_page(alone)
    assert len(small) < len(whole)
    assert "data:image/png" in small
    assert small.count("<figure") == whole.count("<figure") == 1


def test_no_participant_and_no_folder_is_named(html, experiment):
    ids = pd.read_csv(experiment / "predictions.tsv", sep="\t")["participant"].unique()
    assert len(ids) > 10
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
    mine = scores[
        (scores["cohort"] == "alpha") & (scores["target"] == "iq") & (scores["row"] == "raw-0")
    ]
    assert f'data-sort="{mine["r"].item()}"' in html


def test_the_page_reads_as_prose_and_heads_are_words(html):
    words = Reader(html).words
    assert "`" not in words
    without_code = Reader(re.sub(r"<(code|pre)\b.*?</\1>", "", html, flags=re.DOTALL)).words
    assert not re.findall(r"\bnerve (?:check|evaluate|experiment|pretrain|embed)\b", without_code)
    assert "<code>nerve check</code>" in html
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', html)
    assert heads
    assert not [head for head in heads if "_" in head and head not in ("p_factor",)]
    assert not re.search(
        r"<p>[^<]*:</p>\s*(?!<ul>)<", html
    )  # words that lead to a list, over nothing
    assert not re.search(r"\b(people|person)\b", words)


def test_the_methods_text_is_true_of_the_rows(results):
    said = "\n".join(results.methods_text)
    assert "up to 64 principal components" in said
    assert (
        "the settings of small except mask_ratio 0.5; on FC itself; 256 numbers per participant"
        in said
    )
    assert "preset small" not in said  # only where nothing differs
    assert "on alpha (40): NERVE, mask_ratio=0.25, NERVE, mask_ratio=0.5." in said
    gamma = next(
        text
        for text in results.methods_text
        if text.startswith("Gamma: ") and "mask_ratio 0.5" in text
    )
    assert (
        "pretrained on other participants: none of the FC tested was trained on (scope: other_people)"
        in gamma
    )
    assert "including those tested" not in gamma
    assert "age, sex were removed" in said


def test_formulas_of_the_protocol_are_not_taken_for_paths(results):
    (formula,) = {
        found for text in results.methods_text for found in re.findall(r"√\(.*?\)\), for K", text)
    }
    assert formula == "√((1 + K / (K − 1)) (1 + 12 / n)), for K"
    assert not any("[…]" in text for text in results.methods_text)


def test_terms_are_explained_where_they_first_appear(results, html):
    shrunk = results.rows["view"].where(results.rows["method"] != "nerve", "shrunk")
    texts = methods_text(replace(results, rows=results.rows.assign(view=shrunk)))
    assert "NERVE, shrunk view" in texts[0]
    assert "Shrunk view: the model reads how FC of a participant differs" in texts[0]
    words = re.sub(r"\s+", " ", Reader(html).words)
    explained = words.index(
        "Scope : which of the test participants were in the pretraining data of a row"
    )
    assert explained == words.index("Scope") < words.index("scope")
    assert "Shrunk view" not in words  # no row has one
    assert "predict: targets are predicted from features" in words


def test_terms_have_a_tooltip_and_a_line_in_the_glossary(html):
    reader = Reader(html)
    links = [address for address in reader.addresses if address.startswith("#term-")]
    assert {"#term-scope", "#term-target", "#term-reference"} <= set(links)
    assert {address.removeprefix("#") for address in links} <= set(reader.ids)
    assert {term_id(term) for term in TERMS} <= set(reader.ids)
    assert re.search(r'<a class="term" href="#term-scope" title="which of the test', html)
    assert re.search(r'<th scope="col" title="view: [^"]*">view</th>', html)


def test_long_tables_of_maps_are_drawn_and_can_be_saved_from_the_page(html, experiment, results):
    link = re.search(
        r'<a href="data:text/tab-separated-values;base64,([^"]*)" download="attention', html
    )
    saved = pd.read_csv(io.BytesIO(base64.b64decode(link[1])), sep="\t")
    stored = read_tsv(experiment / "interpretation" / "attention.tsv")
    assert len(saved) == len(stored) == 128
    np.testing.assert_allclose(saved["ratio"], stored["ratio"])
    section = html[html.index('id="interpretation"') : html.index('id="methods"')]
    assert "CLS" not in Reader(section).words  # no row of it is on the page
    assert "figure-interpretation_attention" in section
    large = replace(results, interpretation={"attention": pd.concat([stored] * 200)})
    (download,) = map_downloads(large)
    assert download.source == ""
    assert download.place == "interpretation/attention.tsv beside this page"


def test_covariates_are_reported_per_cohort(results):
    gamma = results.about["protocols"]["gamma"] | {"covariates": ["age", "mean_fd"]}
    about = {**results.about, "protocols": results.about["protocols"] | {"gamma": gamma}}
    texts = methods_text(replace(results, about=about))
    assert any(text.startswith("Alpha: ") and "age, sex were removed" in text for text in texts)
    assert any(text.startswith("Gamma: ") and "age, mean_fd were removed" in text for text in texts)


def test_only_methods_that_are_there_are_cited(results):
    def cited(kept, **about):
        mine = results.rows[results.rows["method"].isin(kept)]
        return " ".join(
            work["text"]
            for work in citations(replace(results, rows=mine, about={**results.about, **about}))
        )

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
    assert "could not be made" not in reader.words


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 3])
def test_few_participants_one_target_and_one_method_still_give_a_page(tmp_path, n, unpainted):
    made = Made(cohorts={"alone": n}, targets=["iq"], rows=rows()[1:2], interpretation=False)
    words = read(write_folder(tmp_path, made)).words
    assert "could not be made" not in words
    assert "nothing to compare" in words
    assert "ten participants or more" in words  # the mean of fewer would show them


# ---- one layout, and nothing outside the folder


@pytest.mark.slow
def test_without_the_cohort_the_page_names_the_option_that_adds_its_figures(
    tmp_path, experiment, unpainted
):
    folder = copied(experiment, tmp_path / "e", "cohorts")
    drawn, missing = draw_figures("cohorts", load_results(folder))
    assert not drawn
    assert any("`nerve report DIR --cohort PATH`" in sentence for sentence in missing)
    cohorts = next(cohort_tables(load_results(folder)))
    assert [[text for text, _ in row[:2]] for row in cohorts.rows] == [
        ["Alpha", "40"],
        ["Gamma", "30"],
    ]
    named = load_results(folder, {"alpha": Cohort.load(experiment / "cohorts" / "alpha")})
    assert [figure.name for figure in draw_figures("cohorts", named)[0]] == [
        "cohort_overview",
        "group_mean_fc",
    ]


@pytest.mark.slow
def test_a_cohort_is_known_by_its_fingerprint_and_a_stranger_is_refused(tmp_path, experiment):
    folder, cohort = (
        copied(experiment, tmp_path / "e", "cohorts"),
        Cohort.load(experiment / "cohorts" / "gamma"),
    )
    cohort.name = "another name"
    assert load_results(folder, cohorts_by_name(folder, [cohort])).cohorts["gamma"].mean is not None
    with pytest.raises(
        NerveError, match="'delta' was not evaluated here, expected one of alpha, gamma"
    ):
        load_results(folder, {"delta": cohort.subset(range(12))})
    cohort.participants["age"] += 1
    with pytest.raises(NerveError, match="not what was evaluated here, or was changed since"):
        cohorts_by_name(folder, [cohort])


@pytest.mark.slow
def test_a_cohort_called_by_a_path_opens_nothing(tmp_path, monkeypatch):
    names = ["../outside", "..", "/etc", "a\\b"]
    made = Made(
        cohorts=dict.fromkeys(names, 12),
        targets=["iq"],
        rows=rows()[1:2],
        interpretation=False,
        stored=False,
    )
    folder = write_folder(tmp_path / "results", made)
    for place in (tmp_path / "outside", tmp_path / "results" / "outside"):
        place.mkdir(parents=True)
        write_json(place / "cohort.json", {})
    monkeypatch.setattr(Cohort, "load", lambda path: pytest.fail(f"opened {path}"))
    facts = load_results(folder).cohorts
    assert list(facts) == names
    assert not [name for name in names if facts[name].mean is not None]


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
    with pytest.raises(
        NerveError, match=r"there is no protocol\.json, expected a finished evaluation"
    ):
        write_report(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("manifest.json", "[1, 2]"),
        ("reconstruction.npz", "no archive"),
        ("history.tsv", "a\tb\n1\t2\n"),
    ],
)
def test_a_damaged_file_of_a_run_gives_a_sentence_or_loses_one_part_of_the_page(
    tmp_path, experiment, name, content, monkeypatch
):
    monkeypatch.setattr("nerve.report.figures.SECTIONS", {"pretraining": ("loss_curves",)})
    folder = copied(experiment, tmp_path / "e", "cohorts")
    encoder = next((folder / "runs").glob("*/history.tsv")).parent
    (encoder / name).write_text(content)
    if name == "history.tsv":
        assert "The figure loss_curves could not be made" in read(folder).words
    else:
        with pytest.raises(NerveError, match="its files do not hold what nerve writes there"):
            write_report(folder)


def test_a_training_run_that_has_not_ended(tmp_path):
    write_tsv(
        tmp_path / "history.tsv", pd.DataFrame({"epoch": [1, 2], "training_loss": [0.2, 0.1]})
    )
    reader = read(tmp_path)
    assert "figure-loss_curves" in reader.ids
    assert "not finished" in reader.words


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_a_folder_without_results_is_refused(tmp_path, folder):
    with pytest.raises(NerveError, match="expected"):
        write_report(tmp_path / folder)


@pytest.mark.slow
def test_many_targets_and_methods_fit_a_page_that_can_be_mailed(monkeypatch):
    """Tables and the budget of all figures together."""
    monkeypatch.setattr("nerve.report.figures.SECTIONS", {})
    lines, targets = [f"m{i}" for i in range(60)], [f"t{i}" for i in range(30)]
    rows = rows_table(
        [one for name in lines for one in line(name, "nerve", f"Method {name}", "self-supervised")]
    )
    scores = pd.DataFrame(product(["alpha"], targets, lines), columns=["cohort", "target", "line"])
    scores = scores.assign(
        row=scores["line"] + "-0",
        **dict.fromkeys(("r", "r_low", "r_high", "r_half_width", "p"), 1 / 7),
    )
    scores = scores.assign(
        **dict.fromkeys(("r_low_cv", "r_high_cv", "r_fold_mean", "r2", "mae", "q", "n"), 1 / 7)
    )
    pairs = [("alpha", target, *pair) for target in targets for pair in combinations(lines, 2)]
    compared = pd.DataFrame(pairs, columns=COMPARED[:4]).assign(
        among="methods", metric="r", best_two=False
    )
    compared = compared.assign(
        **dict.fromkeys(("difference", "difference_low", "difference_high", "p", "q", "n"), 1 / 7)
    )
    text = render_page(
        ReportData(rows=rows, scores=scores, comparisons=with_holding_columns(compared))
    )
    assert text.count('<td class="number') >= 1800
    assert len(text.encode()) + BUDGET < 5_000_000


@pytest.mark.slow
def test_images_become_coarser_until_all_figures_are_within_their_budget(monkeypatch):
    figure = Figure(figsize=(8, 8))
    figure.subplots().imshow(np.random.default_rng(0).random((400, 400)))
    fine, small = (DrawnFigure("dense", "", "", "x" * 10**7, figure) for _ in range(2))
    fine.shrink(120)
    monkeypatch.setattr("nerve.report.sections.BUDGET", len(fine.source) * 3 // 4)
    _shrink_to_budget([small])
    assert len(small.source) <= len(fine.source) * 3 // 4


def test_empty_results_from_a_notebook():
    assert "This folder does not say what was run" in render_page(ReportData())


@pytest.mark.slow
def test_a_report_that_nerve_did_not_write_is_not_replaced(tmp_path, experiment, unpainted):
    folder = copied(experiment, tmp_path / "e")
    page = folder / "report.html"
    page.unlink(missing_ok=True)
    write_report(folder)
    write_report(folder)  # it is as nerve wrote it
    page.write_text("my own notes")
    with pytest.raises(NerveError, match="not as nerve wrote it"):
        write_report(folder)
    assert page.read_text() == "my own notes"
    write_report(folder, overwrite=True)
    assert page.read_text() != "my own notes"


@pytest.mark.slow
def test_another_cohort_of_the_same_name_is_refused_by_the_report_of_a_run(tmp_path):
    cohort = simulate_cohort(24, "schaefer100-7", 40, keep_timeseries=False, name="mine")
    other = simulate_cohort(24, "schaefer100-7", 40, keep_timeseries=False, name="mine", seed=9)
    run = tmp_path / "run"
    settings = ["epochs=1", "dim=8", "depth=1", "n_components=4"]
    pretrain([cohort], run, preset="small", assignments=settings, device="cpu")
    assert list(cohorts_by_name(run, [cohort])) == ["mine"]
    with pytest.raises(NerveError, match="'mine' is not what was trained on here"):
        cohorts_by_name(run, [other])
