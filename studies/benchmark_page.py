"""docs/benchmark.md from the results folders of configs/*_benchmark.yaml: tables, figures, cost, and who wins.

`python -m studies.benchmark_page out/abide_benchmark out/ucla_benchmark` writes the page and its figures. Nothing on the
page is typed by hand but the words between the numbers.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from functools import cache
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
UNTRAINED = "untrained"  # the group of the controls

INTRODUCTION = """# Benchmark on real participants

For readers who want to compare all methods on real data. The page shows every row of the package on two public cohorts,
ABIDE (without participants who have constant regions) and UCLA. Frozen features are read by kernel ridge regression;
supervised networks predict directly. All scores are out of fold. They are r for age and FIQ, and the area under the curve
(AUC) for sex and diagnosis. If there are several sites, brackets show the r within sites. **Bold** is the best of a
column; = marks rows that are not distinguishable from it (paired bootstrap over participants, p ≥ .05). CPU s is the
time of a row in all tables of its cohort together, training and prediction, on a machine that also ran other programs.

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
- NERVE is frozen here. [Fine-tuning](howto/fine-tuning.md#who-wins-on-real-participants) has a comparison of its own.

This page was written by `python -m studies.benchmark_page` from the results folders of these two experiments.
"""


@dataclass(eq=False)
class Place:
    """One cohort under one protocol: the score of each line and target, and its comparison with the best."""

    name: str
    results: Results
    runs: pd.DataFrame

    def __post_init__(self) -> None:
        scores = self.results.scores.merge(self.results.rows[["row", "line"]], on="row")
        scores = scores[scores["cohort"] == self.name]
        scores["score"] = scores["auc"].fillna(scores["r"]) if "auc" in scores else scores["r"]
        self.targets = list(dict.fromkeys(scores["target"]))
        self.scores = scores.groupby(["line", "target"], sort=False).mean(numeric_only=True)
        rows = lines_of(self.results.rows)
        self.lines = rows.loc[
            [line for line in rows.index if line in self.scores.index.get_level_values(0)]
        ]
        adapted = scores.dropna(subset="adapted").groupby("line", sort=False)["adapted"].first()
        self.adapted = adapted[adapted != ""]
        self.labels = {
            str(line): short_name(row) + " ‡" * (line in self.adapted.index)
            for line, row in self.lines.iterrows()
        }
        self.predictions = self.results.predictions[
            self.results.predictions["cohort"] == self.name
        ].merge(self.results.rows[["row", "line"]], on="row")

    def column(self, target: str) -> pd.Series:
        """The score of each line on a target, without the covariates, which predict something else."""
        column = self.scores["score"].xs(target, level="target")
        return column[[self.lines.at[line, "method"] != "covariates" for line in column.index]]

    def best(self, target: str) -> str:
        """The line with the highest score, controls aside."""
        column = self.column(target)
        return str(
            column[[self.lines.at[line, "group"] != UNTRAINED for line in column.index]].idxmax()
        )

    @cache  # noqa: B019 - the page is made once
    def against(self, line: str, other: str, target: str) -> dict[str, float]:
        """Line minus other on one target, in a paired bootstrap."""
        part = self.predictions[self.predictions["target"] == target]
        return compare(part, line, other).iloc[0].to_dict()

    def tied(self, target: str) -> set[str]:
        """Lines that cannot be told from the best."""
        best = self.best(target)
        others = [line for line in self.column(target).index if line != best]
        return {line for line in others if self.against(best, line, target)["p"] >= 0.05}

    def table(self) -> str:
        """Markdown: one row per line, one column per target, then numbers per participant and CPU seconds."""
        best, ties = ({t: f(t) for t in self.targets} for f in (self.best, self.tied))
        heads = ["", *self.targets, "numbers", "CPU s"]
        lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for line, row in self.lines.iterrows():
            cells = [self.cell(str(line), t, best[t], ties[t]) for t in self.targets]
            cost = [f"{int(row['width']):,}" if row["width"] else "", f"{row['seconds']:,.0f}"]
            lines.append(f"| {' | '.join([self.labels[str(line)], *cells, *cost])} |")
        return "\n".join(lines)

    def cell(self, line: str, target: str, best: str, ties: set[str]) -> str:
        """A score, its mark, and the r within sites."""
        if (line, target) not in self.scores.index:
            return ""
        row = self.scores.loc[(line, target)]
        text = plain(row["score"])
        text = f"**{text}**" if line == best else f"{text} =" if line in ties else text
        within = (
            row.get("r_within_site", np.nan)
            if self.lines.at[line, "method"] != "covariates"
            else np.nan
        )
        return f"{text} ({plain(within)})" if np.isfinite(within) else text

    def remarks(self) -> list[str]:
        """What rows had to substitute here, and which rows there are not."""
        said = [f"- {self.labels[str(line)]}: {what}" for line, what in self.adapted.items()]
        missing = self.runs[
            (self.runs["cohort"] == self.name) & (self.runs["status"] == UNAVAILABLE)
        ]
        for reason, some in missing.groupby("reason", sort=False):
            methods = dict.fromkeys(
                one.removeprefix("probe ").split(" · ")[0] for one in some["run"]
            )
            said.append(f"- No row for {', '.join(methods)}: {reason}")
        return [*said, ""] if said else []

    def sentences(self) -> list[str]:
        """Who wins, who ties, who fails, on each target."""
        said = []
        for target in self.targets:
            best, ties = self.best(target), self.tied(target)
            column = self.column(target)
            reference = self.lines.index[self.lines["method"] == "raw"][0]
            below = [
                self.labels[str(line)]
                for line in column.index[column < column[reference]]
                if self.lines.at[line, "group"] != UNTRAINED
                and self.against(reference, str(line), target)["p"] < 0.05
            ]
            tie = f", and {len(ties)} more cannot be told from it (=)" if ties else ", alone"
            fail = f" Below raw FC: {'; '.join(below)}." if below else ""
            said.append(
                f"- **{target}**: {self.labels[best]} is best ({plain(column[best])}){tie}.{fail}"
            )
        return said

    def controls(self) -> list[str]:
        """What training added to each self-supervised line: trained minus untrained."""
        said = []
        for control, row in self.lines[self.lines["group"] == UNTRAINED].iterrows():
            same = (self.lines["method"] == row["method"]) & (self.lines["preset"] == row["preset"])
            for line in self.lines.index[same & (self.lines["group"] != UNTRAINED)]:
                found = [(t, self.against(str(line), str(control), t)) for t in self.targets]
                parts = [
                    f"{t} {one['difference']:+.3f} ({probability(one['p'])})" for t, one in found
                ]
                said.append(f"- {self.labels[str(line)]}: {', '.join(parts)}")
        return said


def plain(value: float) -> str:
    """.815 for 0.8151."""
    return f"{value:.3f}".replace("0.", ".", 1)


def probability(p: float) -> str:
    """p .04 for 0.043, p < .01 for less than that."""
    return "p < .01" if p < 0.01 else f"p {p:.2f}".replace("0.", ".", 1)


def in_short(places: list[Place]) -> list[str]:
    """Over all tables: how often each row is best or level with the best, and who is below raw FC throughout."""
    level, columns, worse = Counter[str](), Counter[str](), Counter[str]()
    for place in places:
        raw = place.lines.index[place.lines["method"] == "raw"][0]
        for target in place.targets:
            column, best, ties = place.column(target), place.best(target), place.tied(target)
            for line in map(str, column.index):
                label = place.labels[line].removesuffix(
                    " ‡"
                )  # whatever it had to substitute in one cohort
                columns[label] += 1
                level[label] += line == best or line in ties
                below = column[line] < column[raw]
                worse[label] += below and place.against(str(raw), line, target)["p"] < 0.05
    often = sorted(
        (label for label in columns if level[label]),
        key=lambda label: -level[label] / columns[label],
    )
    never = [label for label in columns if worse[label] == columns[label]]
    ranks = [f"| {label} | {level[label]} of {columns[label]} |" for label in often]
    said = [
        "## In short",
        "",
        "| best, or level with the best | columns |",
        "|---|---|",
        *ranks,
        "",
    ]
    return [*said, f"Below raw FC in every column: {'; '.join(never)}.", ""] if never else said


def site_words(results: Results) -> list[str]:
    """How well each line tells sites apart."""
    column = "site_accuracy"
    if column not in results.scores:
        return []
    table = results.scores.merge(results.rows[["row", "line"]], on="row")
    by_line = table.groupby("line", sort=False)[column].first().dropna()
    lines = lines_of(results.rows)
    parts = [f"{short_name(lines.loc[line])} {plain(value)}" for line, value in by_line.items()]
    return (
        [f"Balanced accuracy with which features predict the site: {', '.join(parts)}."]
        if parts
        else []
    )


def cost_figure(place: Place) -> Figure:
    """Score against CPU seconds, a panel per target; NERVE's default with more and more epochs is joined by a line."""
    groups = list(dict.fromkeys(place.lines["group"]))
    with rc_context(RC):
        figure, axes = plt.subplots(
            1, len(place.targets), figsize=(3.4 * len(place.targets), 3.6), layout="constrained"
        )
        for ax, target in zip(np.atleast_1d(axes), place.targets, strict=True):
            column = place.column(target)
            seconds = place.lines["seconds"].reindex(column.index).clip(lower=0.1)
            for group, colour in zip(groups, CYCLE, strict=False):
                mine = place.lines["group"].reindex(column.index) == group
                ax.scatter(seconds[mine], column[mine], color=colour, s=16, label=group)
            ours = (place.lines["method"] == "nerve") & (place.lines["preset"] == "default")
            path = seconds[ours.reindex(column.index)].sort_values()
            ax.plot(path, column[path.index], color=MUTED, linewidth=0.9, zorder=0)
            ax.set(xscale="log", title=target, xlabel="CPU seconds, training and probes")
            ax.xaxis.set_major_formatter("{x:g}")
            ax.xaxis.set_minor_formatter(NullFormatter())
        np.atleast_1d(axes)[0].set_ylabel("r, or AUC")
        figure.legend(
            *np.atleast_1d(axes)[0].get_legend_handles_labels(),
            loc="outside upper left",
            ncols=len(groups),
        )
    return figure


def section(folder: Path, places: list[Place]) -> list[str]:
    """One experiment: a table per cohort, the sentences, the controls and the forest figure."""
    results = places[0].results
    said = [f"## {results.about['title']}", ""]
    for place in places:
        n = int(results.cohorts.set_index("cohort").at[place.name, "n"])
        said += [
            f"### {place.name} ({n} participants)",
            "",
            place.table(),
            "",
            *place.remarks(),
            *place.sentences(),
            "",
        ]
        if place is places[0]:
            drawn = f"images/{folder.name}_cost.svg"
            cost_figure(place).savefig(DOCS / drawn, metadata={"Date": None})
            said += [f"![Score against CPU seconds]({drawn})", ""]
        controls = place.controls()
        said += (
            ["What training added (trained minus untrained):", "", *controls, ""]
            if controls
            else []
        )
    said += [*site_words(results), ""]
    figure = f"images/{folder.name}.svg"
    (DOCS / "images").mkdir(exist_ok=True)
    with rc_context(RC):
        draw("forest", load_results(folder)).savefig(DOCS / figure, metadata={"Date": None})
    return [*said, f"![Forest plot: every row and target]({figure})", ""]


def places_of(folder: Path) -> list[Place]:
    """The cohorts of an experiment."""
    results, runs = Results.load(folder), read_tsv(folder / "runs.tsv")
    return [Place(str(name), results, runs) for name in results.cohorts["cohort"]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folders", type=Path, nargs="+", help="results folders of `nerve experiment`"
    )
    parser.add_argument("--out", type=Path, default=DOCS / "benchmark.md")
    args = parser.parse_args()
    places = {folder: places_of(folder) for folder in args.folders}
    sections = [text for folder, some in places.items() for text in section(folder, some)]
    short = in_short([place for some in places.values() for place in some])
    args.out.write_text("\n".join([INTRODUCTION, *short, *sections]))
    print(args.out)


if __name__ == "__main__":
    main()
