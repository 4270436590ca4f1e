"""Figures show what the tables say."""

import base64
import inspect
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from painting import noting_words

import nerve.report.figures as package
from nerve._utils.files import read_json
from nerve.data.cohort import Cohort
from nerve.data.parcellation import load_parcellation
from nerve.evaluation import Results
from nerve.report import plot
from nerve.report.figures import (
    FIGURES,
    SECTIONS,
    NothingToDraw,
    draw,
    draw_with_caption,
    function_of,
    svg,
)
from nerve.report.figures.colours import YEO7, YEO17, network_colours
from nerve.report.figures.comparison import sweep_table
from nerve.report.figures.prediction import _null_of_target
from nerve.report.figures.style import network_order, square_matrix
from nerve.report.findings import corrected_interval, find_in
from nerve.report.report_data import CohortFacts, EncoderRun, ReportData, cohort_facts


def test_every_file_is_a_section_and_every_figure_in_it_is_listed():
    files = {path.stem for path in Path(package.__file__).parent.glob("*.py")} - {
        "__init__",
        "colours",
        "style",
    }
    assert files == set(SECTIONS)
    for section, names in SECTIONS.items():
        functions = inspect.getmembers(
            import_module(f"{package.__name__}.{section}"), inspect.isfunction
        )
        assert {
            name
            for name, one in functions
            if one.__annotations__.get("return") == "tuple[Figure, str]"
        } == set(names)


@pytest.mark.parametrize("name", FIGURES)
def test_contract_of_a_figure(name):
    title, _, caption = inspect.getdoc(function_of(name)).partition(".\n\n")
    assert "\n" not in title
    assert len(caption) > 80
    assert not re.search(r"\b(See|people|person)\b", caption)
    assert "Look for" in " ".join(caption.split())
    with pytest.raises(NothingToDraw, match=r"\.$"):  # a sentence, not a traceback
        draw(name, ReportData())


@pytest.fixture(scope="module")
def words(painted):
    return read_json(painted / "words.json")


@pytest.mark.parametrize("name", FIGURES)
def test_figure_is_painted_with_a_caption_turns_dark_and_cuts_no_word(name, painted, words):
    text = (painted / "report.html").read_text("utf-8")
    figure = re.search(
        rf'<figure id="figure-{name}">.*?;base64,([^"]*)".*?</figure>', text, re.DOTALL
    )
    picture = base64.b64decode(figure[1]).decode()
    assert "prefers-color-scheme:dark" in picture
    assert "<text" not in picture  # letters are shapes: no font is needed to read it
    assert not [word for word, _ in words[name] if re.search(r"[$`…]|mathdefault", word)]
    assert not [word for word, margins in words[name] if min(margins) < -1]


@pytest.mark.slow
def test_labels_of_small_neighbouring_networks_do_not_overlap():
    """LimbicA and LimbicB of Schaefer 100 have two regions each."""
    parcellation = load_parcellation("schaefer100-17")
    mean = np.eye(100)
    facts = CohortFacts("a", 30, parcellation=parcellation, mean=mean, n_in_mean=30)
    with noting_words() as drawn_words:
        svg(draw("group_mean_fc", ReportData(cohorts={"a": facts})))
    boxes = {
        words: margins for words, margins in drawn_words if words in set(parcellation.networks)
    }
    middles = sorted(margins[1] for margins in boxes.values())
    assert len(boxes) > 10
    assert np.diff(middles).min() > 4  # of a height of seven


def test_forest_dots_are_at_the_mean_over_seeds(results):
    axes = draw("forest", results).axes[0]
    dots = next(
        one for one in axes.collections if len(one.get_offsets()) == len(results.lines)
    ).get_offsets()
    cohort, target = results.columns[0]
    scores = results.scores
    mine = scores[(scores["cohort"] == cohort) & (scores["target"] == target)]
    expected = [mine[mine["line"] == line]["r"].mean() for line in results.lines.index]
    np.testing.assert_allclose(dots[:, 0], expected)
    np.testing.assert_allclose(dots[:, 1], np.arange(len(expected)))


def test_forest_of_a_cohort_without_scores_reports_them_as_not_available(results):
    cohort, target = results.columns[0]
    mine = (results.scores["cohort"] == cohort) & (results.scores["target"] == target)
    axes = draw("forest", replace(results, scores=results.scores[~mine])).axes
    assert [text.get_text().strip() for text in axes[0].texts] == ["not available"]
    lines = results.scores["line"] == results.lines.index[0]
    axes = draw("forest", replace(results, scores=results.scores[~lines])).axes
    said = [text.get_text().strip() for text in axes[0].texts]
    assert said.count("not available") == 1


def test_forest_names_the_number_of_the_headline_and_draws_the_corrected_interval(results):
    column = results.target_columns[0]
    finding = find_in(results, *column)
    axes = draw("forest", results).axes[0]
    scores = results.scores_at[(*column, finding.line)]
    assert f"{scores['r']:.2f}" in [text.get_text() for text in axes.texts]
    segments = [one.get_segments()[0] for one in axes.collections if hasattr(one, "get_segments")]
    place = list(results.lines.index).index(finding.line)
    mine = next(segment for segment in segments if segment[0, 1] == place)
    np.testing.assert_allclose(mine[:, 0], corrected_interval(scores, "r"))


def test_a_logarithmic_axis_has_plain_numbers(words):
    assert {"0.1", "1", "10"} <= {word for word, _ in words["loss_curves"]}


def test_the_null_is_that_of_the_row_itself(results):
    """Two lines whose names begin alike, and a null that a former evaluation left: neither is taken for another's."""
    column = results.columns[0]
    best = results.best_line(*column, among=results.lines.index)
    alike = results.nulls.assign(line=results.nulls["line"] + "-other", r=9.0)
    _, null, observed = _null_of_target(
        replace(results, nulls=pd.concat([alike, results.nulls])), column
    )
    mine = results.nulls
    mine = mine[
        (mine["cohort"] == column[0]) & (mine["target"] == column[1]) & (mine["line"] == best)
    ]
    np.testing.assert_array_equal(np.sort(null), np.sort(mine["r"]))
    assert list(observed.values()) == [results.r(*column, best)]


@pytest.mark.slow
def test_a_reconstruction_is_shown_only_with_its_number_of_participants(results):
    errors = dict(results.encoders[0].errors)
    assert "Mean FC of 12 participants" in draw_with_caption("reconstruction", results).caption
    errors.pop("example_n")
    unknown = replace(results, encoders=[replace(results.encoders[0], errors=errors)])
    with pytest.raises(NothingToDraw, match="ten held-out participants"):
        draw("reconstruction", unknown)


def test_group_mean_is_the_mean_sorted_by_network():
    parcellation = load_parcellation("schaefer100-7")
    rng = np.random.default_rng(1)
    fc = rng.uniform(-1, 1, (5, 100, 100)).astype(np.float32)
    fc[0, 3, 4] = np.nan  # a missing entry of one person is passed over
    cohort = Cohort(fc, pd.DataFrame({"participant_id": list("abcde")}), parcellation)
    image = plot.group_mean_fc(cohort).axes[0].images[0].get_array()
    order = sorted(
        range(100), key=lambda i: parcellation.network_names.index(parcellation.networks[i])
    )
    np.testing.assert_allclose(
        image, np.nanmean(fc.astype(float), axis=0)[order][:, order], atol=1e-6
    )
    assert network_order(parcellation.networks).tolist() == order


def test_comparison_matrix_is_antisymmetric(results):
    values = np.ma.filled(draw("comparison_matrix", results).axes[0].images[0].get_array(), np.nan)
    np.testing.assert_allclose(np.nan_to_num(values), -np.nan_to_num(values).T)
    assert np.isnan(np.diag(values)).all()


def test_importance_is_symmetric_and_holds_every_pair(results):
    table = results.interpretation["importance"]
    part = table[table["target"] == "iq"]
    networks = list(load_parcellation("schaefer100-7").network_names)
    matrix = square_matrix(part, ("network_a", "network_b"), networks, "drop")
    np.testing.assert_array_equal(matrix, matrix.T)
    for a, b, drop in zip(part["network_a"], part["network_b"], part["drop"], strict=True):
        assert matrix[networks.index(a), networks.index(b)] == drop


def test_sweep_holds_each_value_of_the_setting(results):
    table = sweep_table(results)
    assert set(table["setting"]) == {"mask_ratio"}
    assert set(table["value"]) == {"0.25", "0.5"}
    assert set(table["name"]) == {"NERVE (small)"}
    assert sweep_table(replace(results, rows=results.rows.assign(variant="in words"))).equals(
        table
    )  # words are never parsed


def test_networks_have_the_colours_of_yeo():
    for name, known in (("schaefer400-7", YEO7), ("schaefer400-17", YEO17)):
        networks = load_parcellation(name).network_names
        assert network_colours(networks) == {network: known[network] for network in networks}
        assert len(set(network_colours(networks).values())) == len(networks)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["schaefer100-7+aseg19", load_parcellation("schaefer100-7")])
def test_patch_layout_needs_a_parcellation_only(source):
    assert isinstance(plot.patch_layout(source), Figure)


@pytest.mark.slow
def test_plot_takes_a_folder_and_knows_its_names(experiment):
    assert isinstance(plot.forest(experiment), Figure)
    assert set(FIGURES) <= set(dir(plot))
    with pytest.raises(AttributeError, match="forest"):
        plot.florest  # noqa: B018


def test_facts_of_a_cohort_hold_no_ids():
    people = pd.DataFrame({"participant_id": ["sub-1"], "age": [9.0]})
    gone = pd.DataFrame(
        {"participant_id": ["sub-2", "sub-3"], "reason": ["sub-2: moved", "sub-3: moved"]}
    )
    facts = cohort_facts(Cohort(np.eye(100)[None], people, "schaefer100-7", exclusions=gone))
    assert "sub-" not in facts.participants.to_csv() + facts.left_out.to_csv()
    assert facts.left_out["participants"].tolist() == [2]


SETTINGS = {
    "view": "fc",
    "patching": "networks",
    "tokenizer": "bilinear",
    "mask_ratio": 0.5,
    "dim": 64,
}


def tokens_caption(**settings):
    """The caption of the tokens figure for a NERVE run with these settings."""
    encoder = EncoderRun("a NERVE", pd.DataFrame(), SETTINGS | settings)
    return draw_with_caption(
        "patch_layout",
        ReportData(encoders=[encoder], parcellation=load_parcellation("schaefer100-7")),
    ).caption


@pytest.mark.parametrize(
    ("settings", "said", "not_said"),
    [
        ({}, ["28 patches", "Uₗ and Uₘ", "64 numbers", "14 of the 28 tokens (50% of the patches)"], ["153", "view"]),
        ({"tokenizer": "shared", "mask_ratio": 0.25, "dim": 16}, ["16 numbers", "all patches share", "7 of the 28"],
         ["Uₗ"]),
        ({"tokenizer": "specific"}, ["weights of its own"], ["Uₗ"]),
        ({"tokenizer": "own.module:Own"}, ["tokenizer own.module:Own"], ["Uₗ"]),
        ({"patching": "grid50"}, ["3 patches", "its two blocks"], ["network"]),
        ({"patching": "permuted0"}, ["28 patches", "two permuted networks"], []),
        ({"patching": {"group_of": [0, 1] * 50, "group_names": ["a", "b"]}}, ["3 patches of 2,500 entries"], []),
        ({"view": "shrunk"}, ["the shrunk view of FC"], []),
    ],
)  # fmt: skip
def test_the_caption_of_the_tokens_is_that_of_the_model(settings, said, not_said):
    caption = tokens_caption(**settings)
    assert [words for words in said if words not in caption] == []
    assert [words for words in not_said if words in caption] == []


def test_a_table_that_settings_name_is_not_opened_for_the_tokens(tmp_path):
    with pytest.raises(NothingToDraw, match="not part of these results"):
        tokens_caption(patching=str(tmp_path / "regions.tsv"))


def test_tokens_of_results_without_nerve_are_not_drawn(results):
    rows = results.rows[results.rows["method"] != "nerve"]
    with pytest.raises(NothingToDraw, match="No model that makes tokens"):
        draw("patch_layout", replace(results, rows=rows, encoders=()))


def test_the_reconstruction_is_compared_with_the_group_mean_and_names_the_view(results):
    caption = draw_with_caption("reconstruction", results).caption
    assert "0.700 for the reconstruction and 0.600 for the group mean" in caption
    assert "view" not in caption
    encoder = results.encoders[0]
    shrunk = replace(encoder, errors=dict(encoder.errors) | {"view": "shrunk"})
    other = replace(results, encoders=[shrunk])
    assert (
        "in the shrunk view, and all three matrices mapped back to FC"
        in draw_with_caption("reconstruction", other).caption
    )
    assert "view that each model reads" in draw("reconstruction_error", other).axes[0].get_xlabel()
    assert "units of r" in draw("reconstruction_error", results).axes[0].get_xlabel()


def test_a_model_that_knows_only_its_ratio_has_no_errors_to_draw():
    given = EncoderRun("given", pd.DataFrame(), masked_error=0.9)
    with pytest.raises(NothingToDraw, match=r"reconstruction\.json"):
        draw("reconstruction_error", ReportData(encoders=[given]))


def test_results_in_memory_are_drawn(experiment):
    """`nerve.plot` takes what `nerve.evaluate` returns."""
    assert plot.forest(Results.load(experiment)).axes
