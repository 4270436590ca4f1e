"""The paper's tables: r with its CI half-width as subscript, best bold, second underlined, and what the marks mean.

A table is built once (`results_table`) and written as Markdown, LaTeX, CSV or a DataFrame. The marks:

    bold, underline   best and second best of a column, by the printed value: ties share a mark
    shading           two-sided paired bootstrap between the best two, p < 0.05
    dagger            one-sided p < 0.05 against models with permuted networks
    n.                negative r (Tables 1 and 2); --  not available: the cohort lacks what the method needs
    ‡                 an adapted method: an input it needs was replaced by a documented substitute
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

LEVEL = 0.05


@dataclass(frozen=True)
class Cell:
    """One number of a table and its marks; `r` is NaN where there is none."""

    r: float = float("nan")
    half_width: float = float("nan")
    spread: float = float("nan")
    rank: int = 0
    shaded: bool = False
    dagger: bool = False
    adapted: bool = False

    @property
    def available(self) -> bool:
        """Whether there is a number to print."""
        return bool(np.isfinite(self.r))


@dataclass(frozen=True)
class Row:
    """A line of a table; `group` says which lines stand together between rules."""

    label: str
    cells: tuple[Cell, ...]
    group: str = ""


@dataclass(frozen=True)
class ResultsTable:
    """Methods down, targets of each cohort across.

    Parameters
    ----------
    columns : sequence of (cohort, target)
        In the order in which they are printed; the targets of one cohort stand together.
    rows : sequence of Row
    title : str
    notes : sequence of str
        Sentences below the table.
    signed : bool
        Print negative r as it is (Table 3) rather than "n." (Tables 1 and 2).
    """

    columns: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    title: str = ""
    notes: tuple[str, ...] = ()
    signed: bool = False
    first_column: str = "Method"
    names: Mapping[str, str] = field(default_factory=dict)

    def name(self, word: str) -> str:
        """What the table calls a cohort or a target."""
        return self.names.get(word, word)

    @property
    def cohorts(self) -> list[tuple[str, int]]:
        """Each cohort and how many columns it has."""
        counts: dict[str, int] = {}
        for cohort, _ in self.columns:
            counts[cohort] = counts.get(cohort, 0) + 1
        return list(counts.items())

    def to_frame(self) -> pd.DataFrame:
        """Plain text cells, one column a (cohort, target)."""
        header = pd.MultiIndex.from_tuples([(self.name(c), self.name(t)) for c, t in self.columns])
        cells = [[plain(cell, self.signed) for cell in row.cells] for row in self.rows]
        return pd.DataFrame(
            cells, index=pd.Index([row.label for row in self.rows], name=self.first_column), columns=header
        )

    def to_csv(self) -> str:
        """One header line `cohort: target`, one line a method."""
        frame = self.to_frame()
        frame.columns = pd.Index([f"{self.name(cohort)}: {self.name(target)}" for cohort, target in self.columns])
        return frame.to_csv(lineterminator="\n")

    def to_markdown(self) -> str:
        """A table for a page on the web, with its notes."""
        header = [self.first_column] + [f"{self.name(c)} {self.name(t)}" for c, t in self.columns]
        lines = [_bar(header), _bar(["---"] + [":-:"] * len(self.columns))]
        lines += [
            _bar([_escape_bar(row.label)] + [_markdown(cell, self.signed) for cell in row.cells]) for row in self.rows
        ]
        title = f"**{self.title}**\n\n" if self.title else ""
        return title + "\n".join(lines) + "\n\n" + "  \n".join(self.notes) + "\n"

    def to_latex(self) -> str:
        """A `table*` as in the paper: needs booktabs, adjustbox and xcolor with the option `table`."""
        n = len(self.columns)
        rules = "||".join("|".join(["c" * count]) for _, count in self.cohorts)
        top = " & ".join(
            [r"\textbf{Dataset $\rightarrow$}"]
            + [rf"\multicolumn{{{count}}}{{c}}{{\textbf{{{_tex(self.name(c))}}}}}" for c, count in self.cohorts]
        )
        second = " & ".join(
            [rf"\textbf{{{_tex(self.first_column)} $\downarrow$}}"]
            + [rf"\textit{{{_tex(self.name(t))}}}" for _, t in self.columns]
        )
        notes = [rf"\multicolumn{{{n + 1}}}{{l}}{{{_tex(note)}}} \\" for note in self.notes]
        lines = [
            r"% needs \usepackage{booktabs,adjustbox} and \usepackage[table]{xcolor}",
            r"\providecolor{lightgray}{gray}{0.9}",
            r"\begin{table*}[!t]",
            r"\centering",
            rf"\caption{{{_tex(self.title)}}}",
            r"\begin{adjustbox}{width=1.0\textwidth}",
            rf"\begin{{tabular}}{{l|{rules}}}",
            r"\toprule",
            top + r" \\",
            _cmidrules([count for _, count in self.cohorts]),
            second + r" \\",
            r"\midrule",
            *self._latex_rows(),
            r"\bottomrule",
            *notes,
            r"\end{tabular}",
            r"\end{adjustbox}",
            r"\end{table*}",
        ]
        return "\n".join(lines) + "\n"

    def _latex_rows(self) -> list[str]:
        lines: list[str] = []
        for before, row in zip([None, *self.rows], self.rows, strict=False):
            if before is not None and before.group != row.group:
                lines.append(r"\midrule")
            lines.append(" & ".join([_tex(row.label)] + [_latex(cell, self.signed) for cell in row.cells]) + r" \\")
        return lines


def results_table(
    scores: pd.DataFrame,
    comparisons: pd.DataFrame | None = None,
    *,
    methods: Sequence[str] | None = None,
    groups: Mapping[str, str] | None = None,
    columns: Sequence[tuple[str, str]] | None = None,
    names: Mapping[str, str] | None = None,
    daggers: pd.DataFrame | None = None,
    spreads: pd.DataFrame | None = None,
    adapted: Mapping[tuple[str, str], str] | None = None,
    title: str = "",
    signed: bool = False,
    first_column: str = "Method",
    notes: Sequence[str] = (),
) -> ResultsTable:
    """Build a table from scores (one row a cohort, target and method).

    Parameters
    ----------
    scores : DataFrame
        Columns cohort, target, method, r, r_half_width. Several seeds of a method are averaged.
    comparisons : DataFrame, optional
        Columns cohort, target, p: the paired bootstrap between the best two.
    methods, columns : sequences, optional
        Which rows and columns, in which order; all that occur by default.
    daggers : DataFrame, optional
        Columns cohort, target, method, p: one-sided permutation test against permuted networks.
    spreads : DataFrame, optional
        Columns cohort, target, method, r, spread: rows that print mean ± standard deviation over models.
    adapted : mapping from (cohort, method) to the substitute, optional
    """
    columns = tuple(columns or dict.fromkeys(zip(scores["cohort"], scores["target"], strict=True)))
    methods = list(methods or dict.fromkeys(scores["method"]))
    mean = scores.groupby(["cohort", "target", "method"], sort=False)[["r", "r_half_width"]].mean()
    p_best = _lookup(comparisons, ["cohort", "target"], "p")
    p_dagger = _lookup(daggers, ["cohort", "target", "method"], "p")
    spread = _lookup(spreads, ["cohort", "target", "method"], "spread")
    adapted = adapted or {}
    grid = [
        [
            _cell(mean, (cohort, target, method), p_dagger, spread, (cohort, method) in adapted)
            for cohort, target in columns
        ]
        for method in methods
    ]
    for j, column in enumerate(columns):
        _mark_best([row[j] for row in grid], grid, j, p_best.get(column, float("nan")))
    names = dict(names or {})
    rows = tuple(
        Row(names.get(method, method), tuple(cells), (groups or {}).get(method, ""))
        for method, cells in zip(methods, grid, strict=True)
    )
    notes = [*notes, *_legend(rows, signed, comparisons is not None, adapted)]
    return ResultsTable(columns, rows, title, tuple(notes), signed, first_column, names)


def extended_table(scores: pd.DataFrame) -> pd.DataFrame:
    """The same results with everything a reviewer asks for: fold-mean r, R², MAE, CI, p and N."""
    wanted = ["cohort", "target", "method", "variant", "seed", "n", "r", "r_low", "r_high", "r_fold_mean", "r2", "mae"]
    wanted += ["auc", "balanced_accuracy", "p", "p_fdr", "r_motion"]
    return scores[[name for name in wanted if name in scores.columns]].reset_index(drop=True)


def plain(cell: Cell, signed: bool = False) -> str:
    """A cell as text, its marks as letters: * best, + second, s shaded, † dagger."""
    if not cell.available:
        return "--"
    if cell.r < 0 and not signed:
        return "n."
    text = _number(cell.r)
    if np.isfinite(cell.spread):
        text += f"±{_number(cell.spread)}"
    elif np.isfinite(cell.half_width) and not signed:
        text += f" ±{_number(cell.half_width)}"
    marks = ["", "*", "+"][cell.rank] + ("s" if cell.shaded else "") + ("†" if cell.dagger else "")
    return text + marks + ("‡" if cell.adapted else "")


def _markdown(cell: Cell, signed: bool) -> str:
    if not cell.available:
        return "--"
    if cell.r < 0 and not signed:
        return "n."
    text = _number(cell.r)
    if cell.dagger:
        text += "†"
    if cell.rank == 1:
        text = f"**{text}**"
    elif cell.rank == 2:
        text = f"<u>{text}</u>"
    if np.isfinite(cell.spread):
        text += f" ± {_number(cell.spread)}"
    elif np.isfinite(cell.half_width) and not signed:
        text += f"<sub>±{_number(cell.half_width)}</sub>"
    text += "‡" if cell.adapted else ""
    return f"<mark>{text}</mark>" if cell.shaded else text


def _latex(cell: Cell, signed: bool) -> str:
    if not cell.available:
        return "--"
    if cell.r < 0 and not signed:
        return "n."
    number, width = _number(cell.r), cell.half_width
    dagger = r"$^{\dagger}$" if cell.dagger else ""
    below = rf"_{{\pm {_number(width)}}}" if np.isfinite(width) and not signed else ""
    if cell.rank == 1:
        text = rf"\textbf{{{number}{dagger}}}" + (f"${below}$" if below else "")
    elif cell.rank == 2:
        text = rf"\underline{{{number}{dagger}}}" + (f"${below}$" if below else "")
    else:
        text = f"${number}{below}$" + dagger
    if np.isfinite(cell.spread):
        text = rf"{number}$\pm${_number(cell.spread)}"
    text += r"$^{\ddagger}$" if cell.adapted else ""
    return rf"\cellcolor{{lightgray}}{text}" if cell.shaded else text


def _cell(mean: pd.DataFrame, key: tuple[str, str, str], p_dagger: Mapping, spread: Mapping, adapted: bool) -> Cell:
    if key not in mean.index:
        return Cell()
    r, width = mean.loc[key, ["r", "r_half_width"]].to_numpy(float)
    return Cell(
        float(r),
        float(width),
        float(spread.get(key, float("nan"))),
        dagger=bool(p_dagger.get(key, 1.0) < LEVEL),
        adapted=adapted,
    )


def _mark_best(column: list[Cell], grid: list[list[Cell]], j: int, p: float) -> None:
    """Mark the best and the second best of a column, by the printed value, so that ties are seen."""
    from dataclasses import replace

    printed = [round(cell.r, 2) if cell.available and not np.isfinite(cell.spread) else -np.inf for cell in column]
    order = sorted({value for value in printed if value >= 0}, reverse=True)
    for i, value in enumerate(printed):
        if order and value == order[0]:
            alone = printed.count(value) == 1
            grid[i][j] = replace(column[i], rank=1, shaded=bool(alone and p < LEVEL))
        elif len(order) > 1 and value == order[1] and printed.count(order[0]) == 1:
            grid[i][j] = replace(column[i], rank=2)


def _legend(rows: Sequence[Row], signed: bool, compared: bool, adapted: Mapping) -> list[str]:
    cells = [cell for row in rows for cell in row.cells]
    notes = []
    if not signed:
        notes.append("r with the half-width of its bootstrap 95 % CI; bold: best, underlined: second best.")
    if compared:
        notes.append("Shaded: p < 0.05, two-sided paired bootstrap between the best two methods.")
    if any(cell.dagger for cell in cells):
        notes.append("†: p < 0.05, one-sided permutation test against models with permuted networks.")
    if any(cell.available and cell.r < 0 for cell in cells) and not signed:
        notes.append("n.: negative r.")
    if any(not cell.available for cell in cells):
        notes.append("--: not available, the cohort lacks what the method needs.")
    substitutes = dict.fromkeys(f"{method}: {how}" for (_, method), how in adapted.items())
    if substitutes and any(cell.adapted for cell in cells):
        notes.append("‡: adapted. " + "; ".join(substitutes) + ".")
    return notes


def _lookup(table: pd.DataFrame | None, keys: list[str], value: str) -> dict:
    if table is None or not len(table):
        return {}
    return table.groupby(keys, sort=False)[value].mean().to_dict()


def _number(value: float) -> str:
    """Two decimals without the leading zero, as the paper prints them.

    Examples
    --------
    >>> [_number(x) for x in (0.114, -0.04, 1.0, -0.001)]
    ['.11', '-.04', '1.00', '.00']
    """
    text = f"{value:.2f}"
    if float(text) == 0:
        text = "0.00"
    return text.replace("0.", ".", 1) if abs(value) < 0.995 else text


def _cmidrules(counts: Sequence[int]) -> str:
    rules, start = [], 2
    for count in counts:
        rules.append(rf"\cmidrule(lr){{{start}-{start + count - 1}}}")
        start += count
    return " ".join(rules)


def _bar(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escape_bar(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$"}
_TEX |= {"†": r"$\dagger$", "‡": r"$\ddagger$", "±": r"$\pm$", "²": r"$^2$", "×": r"$\times$", "\n": " "}
_TEX |= {letter: f"\\{letter}" for letter in "&%$#_{}"}


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in text)
