"""Write docs/benchmark.md: which method predicts best on real cohorts, and at what cost?

`python -m studies.benchmark_page out/abide_benchmark out/ucla_benchmark` reads the results folders
of the experiments `configs/abide_benchmark.yaml` and `configs/ucla_benchmark.yaml`, and writes the
page and its figures (`docs/images`). All numbers on the page come from these folders.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from nerve._utils.files import read_tsv
from nerve.evaluation import compare
from nerve.evaluation.results import Results
from nerve.evaluation.rows import lines_of, short_name
from nerve.experiments.run_store import UNAVAILABLE
from nerve.report.figures import draw
from nerve.report.figures.colours import CYCLE, MUTED, RC
from nerve.report.load import load_results

DOCS = Path(__file__).parents[1] / "docs"
UNTRAINED = "untrained"  # the group of the controls: encoders that were not trained
SUBSTITUTE_MARK = " ‡"  # after the label of a line that used a substitute in a cohort

INTRODUCTION = """# Benchmark on real participants

For readers who want to compare all methods on real data. The page shows every row of the package on two public cohorts,
ABIDE (without participants who have constant regions) and UCLA. Frozen features are read by kernel ridge regression;
supervised networks predict directly. All scores are out of fold. They are r for age and FIQ, and the area under the curve
(AUC) for sex and diagnosis. If there are several sites, brackets show the r within sites. **Bold** is the best of a
column; = marks rows that are not distinguishable from it (p ≥ .05 in a test that is corrected for training sets that
overlap, `p_cv`: [reliability](reliability.md)). CPU s is the time of a row in all tables of its cohort together, training
and prediction, on a machine that also ran other programs.

How to read the rows:

- Encoders were trained on all participants without labels (`pretrain_scope: all`).
- NERVE's presets (named sets of settings) and its view (the matrix that it cuts into patches) were chosen on ABIDE's
  age, sex and diagnosis ([what NERVE learns](what-nerve-learns.md)), so its rows there are not an independent test.
  Nothing was chosen on UCLA.
- All other rows have the settings of their preset `small`, except for the epochs in `configs/abide_benchmark.yaml` and
  `configs/ucla_benchmark.yaml`. "NERVE (paper)" is the preset `paper`, but with 20 epochs in batches of 32.
- Supervised networks are trained separately in each fold for each target, for few epochs. With the budgets of their papers
  they may be better.
- UCLA has two scanners, so no table leaves a site out.
- NERVE is frozen here. Networks on its tokens that are trained with the target, fine-tuned or from random weights,
  predict worse on both cohorts, for 11 to 49 times the CPU seconds of the frozen row (pretraining not counted):
  [fine-tuning](howto/fine-tuning.md#who-wins-on-real-participants) has the tables.

This page was written by `python -m studies.benchmark_page` from the results folders of these two experiments.
"""


class CohortScores:
    """Scores of all lines on one cohort under one protocol, as text for the page.

    A line is a set of rows that differ in their seed alone; its score is their mean.

    Parameters
    ----------
    cohort : str
        The name of the cohort.
    results : Results
        Results of the experiment.
    runs : DataFrame
        The table of its runs (`runs.tsv`), which names what could not be computed.
    """

    def __init__(self, cohort: str, results: Results, runs: pd.DataFrame) -> None:
        self.cohort = cohort
        self.results = results
        self.runs = runs
        line_of_row = results.rows[["row", "line"]]
        predictions = results.predictions[results.predictions["cohort"] == cohort]
        self.predictions = predictions.merge(line_of_row, on="row")

        scores = results.scores.merge(line_of_row, on="row")
        scores = scores[scores["cohort"] == cohort]
        if "auc" in scores:
            scores["score"] = scores["auc"].fillna(scores["r"])
        else:
            scores["score"] = scores["r"]
        self.targets = list(dict.fromkeys(scores["target"]))
        self.scores = scores.groupby(["line", "target"], sort=False).mean(numeric_only=True)

        lines = lines_of(results.rows)
        scored_lines = self.scores.index.get_level_values("line")
        self.lines = lines.loc[[line for line in lines.index if line in scored_lines]]

        substitutes = scores.dropna(subset="adapted")
        substitutes = substitutes.groupby("line", sort=False)["adapted"].first()
        self.substitutes = substitutes[substitutes != ""]
        self.labels = {}
        for line, row in self.lines.iterrows():
            mark = SUBSTITUTE_MARK if line in self.substitutes.index else ""
            self.labels[str(line)] = short_name(row) + mark

        self._comparisons: dict[tuple[str, str, str], dict[str, float]] = {}

    def scores_on(self, target: str) -> pd.Series:
        """Return the score of each line on a target.

        The line of covariates is left out, because it predicts another observed value.
        """
        scores = self.scores["score"].xs(target, level="target")
        return scores[[self.lines.at[line, "method"] != "covariates" for line in scores.index]]

    def best_line(self, target: str) -> str:
        """Return the line with the highest score among all but the controls."""
        scores = self.scores_on(target)
        is_contender = [self.lines.at[line, "group"] != UNTRAINED for line in scores.index]
        return str(scores[is_contender].idxmax())

    def raw_line(self) -> str:
        """Return the line of raw FC."""
        return str(self.lines.index[self.lines["method"] == "raw"][0])

    def compare_lines(self, line_a: str, line_b: str, target: str) -> dict[str, float]:
        """Compare two lines on one target; the difference is a − b."""
        key = (line_a, line_b, target)
        if key not in self._comparisons:
            of_target = self.predictions[self.predictions["target"] == target]
            self._comparisons[key] = compare(of_target, line_a, line_b).iloc[0].to_dict()
        return self._comparisons[key]

    def tied_lines(self, target: str) -> set[str]:
        """Return the lines that are not distinguishable from the best one."""
        best = self.best_line(target)
        tied = set()
        for line in self.scores_on(target).index:
            if line != best and self.compare_lines(best, line, target)["p_cv"] >= 0.05:
                tied.add(line)
        return tied

    def is_below_raw(self, line: str, target: str) -> bool:
        """Whether a line is worse than raw FC, by its score and by the corrected test."""
        scores = self.scores_on(target)
        raw = self.raw_line()
        if not scores[line] < scores[raw]:  # also if a score is not a number
            return False
        return self.compare_lines(raw, line, target)["p_cv"] < 0.05

    def table(self) -> str:
        """Return a Markdown table of one row per line.

        After one column per target come numbers per participant and CPU seconds.
        """
        heads = ["", *self.targets, "numbers", "CPU s"]
        table_lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        best = {target: self.best_line(target) for target in self.targets}
        tied = {target: self.tied_lines(target) for target in self.targets}
        for line, row in self.lines.iterrows():
            cells = [self.labels[str(line)]]
            for target in self.targets:
                cells.append(self._cell(str(line), target, best[target], tied[target]))
            cells.append(f"{int(row['width']):,}" if row["width"] else "")
            cells.append(f"{row['seconds']:,.0f}")
            table_lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(table_lines)

    def _cell(self, line: str, target: str, best: str, tied: set[str]) -> str:
        """Return a score with its mark, and the r within sites in brackets."""
        if (line, target) not in self.scores.index:
            return ""
        scores = self.scores.loc[(line, target)]
        text = format_score(scores["score"])
        if line == best:
            text = f"**{text}**"
        elif line in tied:
            text = f"{text} ="
        r_within_site = scores.get("r_within_site", np.nan)
        if self.lines.at[line, "method"] != "covariates" and np.isfinite(r_within_site):
            text += f" ({format_score(r_within_site)})"
        return text

    def remarks(self) -> list[str]:
        """Return list items: which lines used a substitute, and which methods have no row."""
        items = []
        for line, substitute in self.substitutes.items():
            items.append(f"- {self.labels[str(line)]}: {substitute}")
        is_missing = (self.runs["cohort"] == self.cohort) & (self.runs["status"] == UNAVAILABLE)
        for reason, runs in self.runs[is_missing].groupby("reason", sort=False):
            methods = [run.removeprefix("predict ").split(" · ")[0] for run in runs["run"]]
            items.append(f"- No row for {', '.join(dict.fromkeys(methods))}: {reason}")
        if items:
            items.append("")
        return items

    def sentences(self) -> list[str]:
        """Return one list item per target: the best line, ties, and lines below raw FC."""
        items = []
        for target in self.targets:
            best = self.best_line(target)
            n_tied = len(self.tied_lines(target))
            scores = self.scores_on(target)
            below_raw = []
            for line in scores.index:
                is_control = self.lines.at[line, "group"] == UNTRAINED
                if not is_control and self.is_below_raw(str(line), target):
                    below_raw.append(self.labels[str(line)])
            item = f"- **{target}**: {self.labels[best]} is best ({format_score(scores[best])})"
            if n_tied:
                item += f", and {n_tied} more cannot be told from it (=)."
            else:
                item += ", alone."
            if below_raw:
                item += f" Below raw FC: {'; '.join(below_raw)}."
            items.append(item)
        return items

    def training_effects(self) -> list[str]:
        """Return one list item per self-supervised line: its scores minus those untrained."""
        items = []
        is_control = self.lines["group"] == UNTRAINED
        for control, control_row in self.lines[is_control].iterrows():
            same_method = self.lines["method"] == control_row["method"]
            same_preset = self.lines["preset"] == control_row["preset"]
            for line in self.lines.index[same_method & same_preset & ~is_control]:
                differences = []
                for target in self.targets:
                    comparison = self.compare_lines(str(line), str(control), target)
                    p = format_p(comparison["p_cv"])
                    differences.append(f"{target} {comparison['difference']:+.3f} ({p})")
                items.append(f"- {self.labels[str(line)]}: {', '.join(differences)}")
        return items


def format_score(value: float) -> str:
    """Return .815 for 0.8151."""
    return f"{value:.3f}".replace("0.", ".", 1)


def format_p(p: float) -> str:
    """Return "p .04" for 0.043, and "p < .01" below that."""
    if p < 0.01:
        return "p < .01"
    return f"p {p:.2f}".replace("0.", ".", 1)


def summarise(cohorts: list[CohortScores]) -> list[str]:
    """Return the section over all tables: who is often best or tied, and who is below raw FC.

    A line counts under the same label whether or not it used a substitute in a cohort.
    """
    n_columns: Counter[str] = Counter()
    n_best_or_tied: Counter[str] = Counter()
    n_below_raw: Counter[str] = Counter()
    for cohort in cohorts:
        for target in cohort.targets:
            best = cohort.best_line(target)
            tied = cohort.tied_lines(target)
            for line in map(str, cohort.scores_on(target).index):
                label = cohort.labels[line].removesuffix(SUBSTITUTE_MARK)
                n_columns[label] += 1
                n_best_or_tied[label] += line == best or line in tied
                n_below_raw[label] += cohort.is_below_raw(line, target)

    shares = {}
    for label, count in n_best_or_tied.items():
        if count:
            shares[label] = count / n_columns[label]
    text = ["## In short", "", "| best, or level with the best | columns |", "|---|---|"]
    for label in sorted(shares, key=lambda label: -shares[label]):
        text.append(f"| {label} | {n_best_or_tied[label]} of {n_columns[label]} |")
    text.append("")
    always_below = [label for label in n_columns if n_below_raw[label] == n_columns[label]]
    if always_below:
        text += [f"Below raw FC in every column: {'; '.join(always_below)}.", ""]
    return text


def site_sentences(results: Results) -> list[str]:
    """Return a sentence on how well the features of each line predict the site, if known."""
    if "site_accuracy" not in results.scores:
        return []
    scores = results.scores.merge(results.rows[["row", "line"]], on="row")
    accuracies = scores.groupby("line", sort=False)["site_accuracy"].first().dropna()
    if not len(accuracies):
        return []
    lines = lines_of(results.rows)
    parts = []
    for line, accuracy in accuracies.items():
        parts.append(f"{short_name(lines.loc[line])} {format_score(accuracy)}")
    return [f"Balanced accuracy with which features predict the site: {', '.join(parts)}."]


def draw_cost(cohort: CohortScores) -> Figure:
    """Draw scores against CPU seconds, one panel per target.

    The rows of NERVE's default preset, which differ in their epochs, are joined by a line.
    """
    groups = list(dict.fromkeys(cohort.lines["group"]))
    n_targets = len(cohort.targets)
    with rc_context(RC):
        figure, axes = plt.subplots(
            1, n_targets, figsize=(3.4 * n_targets, 3.6), layout="constrained", squeeze=False
        )
        panels = axes[0]
        for ax, target in zip(panels, cohort.targets, strict=True):
            scores = cohort.scores_on(target)
            lines = cohort.lines.reindex(scores.index)
            seconds = lines["seconds"].clip(lower=0.1)
            for group, colour in zip(groups, CYCLE, strict=False):
                in_group = lines["group"] == group
                ax.scatter(seconds[in_group], scores[in_group], color=colour, s=16, label=group)
            is_default_nerve = (lines["method"] == "nerve") & (lines["preset"] == "default")
            sorted_seconds = seconds[is_default_nerve].sort_values()
            ax.plot(
                sorted_seconds, scores[sorted_seconds.index], color=MUTED, linewidth=0.9, zorder=0
            )
            ax.set(xscale="log", title=target, xlabel="CPU seconds, training and probes")
            ax.xaxis.set_major_formatter("{x:g}")
            ax.xaxis.set_minor_formatter(NullFormatter())
        panels[0].set_ylabel("r, or AUC")
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=len(groups)
        )
    return figure


def experiment_section(folder: Path, cohorts: list[CohortScores]) -> list[str]:
    """Return the section of one experiment, and write its two figures.

    It has a table with remarks and sentences per cohort, the cost figure of the first cohort, and
    the forest plot.
    """
    (DOCS / "images").mkdir(exist_ok=True)
    results = cohorts[0].results
    n_participants = results.cohorts.set_index("cohort")["n"]
    text = [f"## {results.about['title']}", ""]
    for cohort in cohorts:
        n = int(n_participants[cohort.cohort])
        text += [f"### {cohort.cohort} ({n} participants)", ""]
        text += [cohort.table(), ""]
        text += cohort.remarks()
        text += [*cohort.sentences(), ""]
        if cohort is cohorts[0]:
            cost_image = f"images/{folder.name}_cost.svg"
            draw_cost(cohort).savefig(DOCS / cost_image, metadata={"Date": None})
            text += [f"![Score against CPU seconds]({cost_image})", ""]
        training_effects = cohort.training_effects()
        if training_effects:
            text += ["What training added (trained minus untrained):", ""]
            text += [*training_effects, ""]
    text += [*site_sentences(results), ""]

    forest_image = f"images/{folder.name}.svg"
    with rc_context(RC):
        forest = draw("forest", load_results(folder))
        forest.savefig(DOCS / forest_image, metadata={"Date": None})
    text += [f"![Forest plot: every row and target]({forest_image})", ""]
    return text


def load_cohorts(folder: Path) -> list[CohortScores]:
    """Load the scores of each cohort of an experiment."""
    results = Results.load(folder)
    runs = read_tsv(folder / "runs.tsv")
    return [CohortScores(str(name), results, runs) for name in results.cohorts["cohort"]]


def main() -> None:
    """Read the command line and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folders", type=Path, nargs="+", help="results folders of `nerve experiment`"
    )
    parser.add_argument("--out", type=Path, default=DOCS / "benchmark.md")
    args = parser.parse_args()
    all_cohorts = []
    sections = []
    for folder in args.folders:
        cohorts = load_cohorts(folder)
        all_cohorts += cohorts
        sections += experiment_section(folder, cohorts)
    args.out.write_text("\n".join([INTRODUCTION, *summarise(all_cohorts), *sections]))
    print(args.out)


if __name__ == "__main__":
    main()
