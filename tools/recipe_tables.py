"""The tables of docs/recipe.md, from the TSVs that tools/recipe.py writes."""

import re
from collections.abc import Callable

import pandas as pd

TARGETS = ["age", "sex", "diagnosis"]
HEADS = ["age r", "sex AUC", "diagnosis AUC"]
ABIDE_ROWS = {
    "ppca, 200 components": "probabilistic PCA, 200 components",
    "paper, same time": "the paper's recipe in the same time",
    "paper, batch of 16, same time": "the paper's recipe in batches of 16, same time",
    "default, no training": "default, no training",
    "default": "**default**",
    "default, 20 epochs": "default, 20 epochs instead of 10",
    "permuted networks, no training": "control: permuted networks, no training",
    "permuted networks": "control: permuted networks",
}
FEATURE_ROWS = {
    "raw": "raw FC",
    "raw minus mean": "raw FC minus mean",
    "pca": "PCA",
    "tangent": "tangent space",
    "NERVE pca": "**NERVE `pca`, 256 numbers**",
    "NERVE factors": "NERVE `factors`",
    "NERVE tokens": "**NERVE `tokens`**",
    "NERVE no training, pca": "no training, `pca`",
    "NERVE no training, in folds, pca": "no training, `pca`, fitted in folds",
    "NERVE no training, tokens": "no training, `tokens`",
    "NERVE no training, permuted networks, tokens": "no training, permuted networks, `tokens`",
    "NERVE permuted networks, pca": "permuted networks, `pca`",
    "NERVE permuted networks, tokens": "permuted networks, `tokens`",
}
LABEL_ROWS = ["raw", "raw minus mean", "NERVE pca", "NERVE factors", "NERVE tokens"]


def fill(page: str, name: str, table: str) -> str:
    """The page with the block between the marks of one table replaced."""
    begin, end = f"<!-- table {name} -->\n", f"<!-- end of {name} -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"the page must have one {begin.strip()} and one {end}")
    before, rest = page.split(begin)
    return before + begin + table + "\n" + end + rest.split(end)[1]


def lines(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; signs are set as signs."""
    text = "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])
    return re.sub(r"-(?=\d)", "−", text)


def number(value: float) -> str:
    """Three places, or none where they would say nothing; – for a value that is not there."""
    return "–" if pd.isna(value) else f"{value:.3f}" if abs(value) < 10 else f"{value:.0f}"


def abide(found: pd.DataFrame) -> str:
    """A row for each model, a column for each split."""
    splits = sorted(found["seed"].unique())
    rows = [["group mean", *["1"] * (len(splits) + 1), "–"]]
    for model, title in ABIDE_ROWS.items():
        one = found[found["model"] == model].set_index("seed")
        if one.empty:
            continue
        low, high = one["cpu_seconds"].min(), one["cpu_seconds"].max()
        seconds = "–" if high == 0 else f"{low:.0f}–{high:.0f}" if low < high else f"{high:.0f}"
        errors = one["masked_error"].reindex(splits)
        mean = errors.mean() if errors.notna().all() else float("nan")
        rows.append([title, *map(number, errors), number(mean), seconds])
    return lines(["", *(f"split {split}" for split in splits), "mean", "CPU s"], rows)


def features(found: pd.DataFrame) -> str:
    """r of age, AUC of sex and diagnosis, means over seeds; the interval of the first seed's difference from raw FC."""
    rows = []
    for name, title in FEATURE_ROWS.items():
        one = found[found["features"] == name]
        if not one.empty:
            rows.append([title, *(_cell(one[one["target"] == target]) for target in TARGETS)])
    return lines(["features", *HEADS], rows)


def _cell(one: pd.DataFrame) -> str:
    """The mean over seeds, and in brackets the interval of the first."""
    one = one.sort_values("seed")
    score = one["r" if one["target"].iloc[0] == "age" else "auc"].mean()
    interval = re.search(r"\[.*\]", str(one["minus_raw"].iloc[0]))
    return f"{score:.3f} {interval[0]}" if interval else f"{score:.3f}"


def features_against_pca(found: pd.DataFrame) -> str:
    """The first seed's paired differences of NERVE from components of raw FC."""
    found = found[found["seed"] == found["seed"].min()].set_index(["features", "target"])["minus_pca"]
    names = ["NERVE pca", "NERVE factors", "NERVE tokens"]
    rows = [[FEATURE_ROWS[name], *(str(found[name, target]).lstrip("'") for target in TARGETS)] for name in names]
    return lines(["minus PCA", *HEADS], rows)


def stages(found: pd.DataFrame) -> str:
    """Share of people found again, one column a seed of the encoder."""
    titles = {"raw": "raw FC", "pca": "PCA of UCLA, 223 components", "raw minus mean": "raw FC minus the mean of UCLA"}
    rows = []
    for name, one in found.groupby("features", sort=False):
        shares = [f"{share:.3f}" for share in one.sort_values("seed")["identified"]]
        title = titles.get(str(name), re.sub(r"^(NERVE.*), (\w+)$", r"\1, `\2`", str(name)))
        rows.append([title, " / ".join(shares if len(set(shares)) > 1 else shares[:1])])
    return lines(["features", "identified, by seed"], rows)


def labels(found: pd.DataFrame) -> str:
    """Mean r over draws and seeds: a row for each number of labels and target, a column for each feature set."""
    rows = []
    for target in TARGETS:
        for n in sorted(found["n"].unique()):
            here = found[(found["target"] == target) & (found["n"] == n)].groupby("features")["r"].mean()
            rows.append([target, str(n), *(number(here[name]) for name in LABEL_ROWS)])
    return lines(["target", "labelled", *(FEATURE_ROWS[name].replace("**", "") for name in LABEL_ROWS)], rows)


def simulated(found: pd.DataFrame) -> str:
    """Mean over cohorts, and the values of each."""
    rows = []
    for (what, model), one in found.groupby(["what", "model"], sort=False):
        values = one.sort_values("seed")["value"]
        rows.append([str(what), str(model), number(values.mean()), ", ".join(map(number, values))])
    return lines(["", "model", "mean", "cohorts"], rows)


def _of(cohort: str, render: Callable[[pd.DataFrame], str]) -> Callable[[pd.DataFrame], str]:
    """The table of one of the cohorts of features.tsv; nothing if it has not been computed."""

    def rendered(found: pd.DataFrame) -> str:
        here = found[found["cohort"] == cohort]
        return "" if here.empty else render(here)

    return rendered


# name in the page → how it is made; up to the first dash it is the name of the TSV
TABLES: dict[str, Callable[[pd.DataFrame], str]] = {
    "abide": abide,
    "features-abide": _of("abide", features),
    "features-abide-pca": _of("abide", features_against_pca),
    "features-ucla": _of("ucla", features),
    "features-ucla-pca": _of("ucla", features_against_pca),
    "stages": stages,
    "transfer": features,
    "transfer-pca": features_against_pca,
    "labels": labels,
    "simulated": simulated,
}
