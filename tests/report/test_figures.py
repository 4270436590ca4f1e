"""Figures show what the tables say."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import nerve.report.figures as package
from nerve import plot
from nerve.cohort import Cohort
from nerve.parcellation import load_parcellation
from nerve.report.figures import FIGURES, NothingToDraw, draw, svg
from nerve.report.figures.interpretation_importance import square
from nerve.report.figures.style import YEO7, YEO17, network_colours, network_order
from nerve.report.figures.sweep import swept
from nerve.report.results import Results, cohort_facts

SECTIONS = {"cohorts", "pretraining", "prediction", "comparison", "interpretation"}


def test_every_file_is_a_figure_and_every_figure_a_file():
    files = {path.stem for path in Path(package.__file__).parent.glob("*.py")} - {"__init__", "style"}
    assert files == set(FIGURES)


@pytest.mark.parametrize("name", FIGURES)
def test_contract_of_a_figure(name):
    module = import_module(FIGURES[name])
    assert module.SECTION in SECTIONS
    assert module.TITLE
    assert module.__doc__
    with pytest.raises(NothingToDraw, match=r"\.$"):  # a sentence, not a traceback
        draw(name, Results())


@pytest.mark.parametrize("name", FIGURES)
def test_figure_is_drawn_with_a_caption_and_turns_dark(name, results):
    figure = draw(name, results)
    assert isinstance(figure, Figure)
    text = svg(figure)
    assert "prefers-color-scheme:dark" in text
    assert "<text" not in text  # letters are shapes: no font is needed to read it
    assert len(import_module(FIGURES[name]).caption(results)) > 80


def test_forest_dots_stand_at_the_mean_over_seeds(results):
    axes = draw("forest", results).axes[0]
    dots = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
    cohort, target = results.columns[0]
    scores = results.scores
    mine = scores[(scores["cohort"] == cohort) & (scores["target"] == target)]
    expected = [mine[(mine["method"] == m) & (mine["variant"] == v)]["r"].mean() for m, v in results.models]
    np.testing.assert_allclose(dots, expected)


def test_group_mean_is_the_mean_sorted_by_network():
    parcellation = load_parcellation("schaefer100-7")
    rng = np.random.default_rng(1)
    fc = rng.uniform(-1, 1, (10, 100, 100)).astype(np.float32)
    fc[0, 3, 4] = np.nan  # a missing entry of one person is passed over
    cohort = Cohort(fc, pd.DataFrame({"participant_id": list("abcdefghij")}), parcellation)
    image = plot.group_mean_fc(cohort).axes[0].images[0].get_array()
    order = sorted(range(100), key=lambda i: parcellation.network_names.index(parcellation.networks[i]))
    np.testing.assert_allclose(image, np.nanmean(fc.astype(float), axis=0)[order][:, order], atol=1e-6)
    assert network_order(parcellation.networks).tolist() == order


def test_comparison_matrix_is_antisymmetric(results):
    values = np.ma.filled(draw("comparison_matrix", results).axes[0].images[0].get_array(), np.nan)
    np.testing.assert_allclose(np.nan_to_num(values), -np.nan_to_num(values).T)
    assert np.isnan(np.diag(values)).all()


def test_importance_is_symmetric_and_holds_every_pair(results):
    table = results.interpretation["importance"]
    part = table[table["target"] == "iq"]
    networks = list(load_parcellation("schaefer100-7").network_names)
    matrix = square(part, networks, "drop")
    np.testing.assert_array_equal(matrix, matrix.T)
    for a, b, drop in zip(part["network_a"], part["network_b"], part["drop"], strict=True):
        assert matrix[networks.index(a), networks.index(b)] == drop


def test_sweep_holds_each_value_of_the_setting(results):
    table = swept(results)
    assert set(table["setting"]) == {"mask_ratio"}
    assert set(table["value"]) == {"0.25", "0.5"}


def test_networks_have_the_colours_of_yeo():
    for name, known in (("schaefer400-7", YEO7), ("schaefer400-17", YEO17)):
        networks = load_parcellation(name).network_names
        assert network_colours(networks) == {network: known[network] for network in networks}
        assert len(set(network_colours(networks).values())) == len(networks)


@pytest.mark.parametrize("source", ["schaefer400-17", "schaefer100-7+aseg19", load_parcellation("schaefer100-7")])
def test_patch_layout_needs_a_parcellation_only(source):
    assert isinstance(plot.patch_layout(source), Figure)


def test_plot_takes_a_folder_and_knows_its_names(experiment):
    assert isinstance(plot.forest(experiment), Figure)
    assert set(FIGURES) <= set(dir(plot))
    with pytest.raises(AttributeError, match="forest"):
        plot.florest  # noqa: B018


def test_facts_of_a_cohort_hold_no_ids():
    people = pd.DataFrame({"participant_id": ["sub-1"], "age": [9.0]})
    gone = pd.DataFrame({"participant_id": ["sub-2", "sub-3"], "reason": ["sub-2: moved", "sub-3: moved"]})
    facts = cohort_facts(Cohort(np.eye(100)[None], people, "schaefer100-7", exclusions=gone))
    assert "sub-" not in facts.people.to_csv() + facts.left_out.to_csv()
    assert facts.left_out["people"].tolist() == [2]


def test_the_mean_of_fewer_than_ten_people_is_not_shown():
    from nerve.report.figures import group_mean_fc
    from nerve.report.results import NothingToDraw, Results, cohort_facts
    from nerve.simulate import simulate_cohort

    people = simulate_cohort(12, "schaefer100-7", 30, keep_timeseries=False)
    for n, shown in ((12, True), (9, False)):
        facts = cohort_facts(people.subset(range(n)))
        results = Results(cohorts={"a": facts})
        if shown:
            assert group_mean_fc.draw(results).axes
        else:
            with pytest.raises(NothingToDraw, match="ten or more"):
                group_mean_fc.draw(results)
