"""Make the model that comes with the package, and measure it: one command, from two open cohorts of 419 regions.

    python -m studies.real_cohorts --data FOLDER --out cohorts ucla stages stages-again
    python -m tools.make_shipped_model cohorts/ucla cohorts/stages --again cohorts/stages-again

writes src/nerve/pretrained/nerve-small-419.zip. Its card holds what was measured. No participant's data are in it:
`group_only` refuses arrays that could hold anybody.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from nerve import Cohort, evaluate
from nerve._utils.errors import problem
from nerve._utils.files import write_text
from nerve.evaluation import score_table
from nerve.methods.base import CARD
from nerve.methods.nerve import NERVE
from nerve.methods.pretrained import PACKAGED, pack

NAME, MOST = "nerve-small-419", 5 * 2**20  # bytes
SETTINGS: dict[str, Any] = {
    "n_directions": 16,
    "n_components": 32,
    "dim": 32,
    "device": "cpu",
}  # few: a small file
TARGETS = {"age": "r", "sex": "auc", "diagnosis": "auc"}


def train(cohorts: list[Cohort]) -> NERVE:
    """The recipe of the shipped model."""
    return NERVE.from_preset("small", **SETTINGS).fit(cohorts)


# ---- what is measured


def predicted(cohort: Cohort, model: NERVE) -> dict[str, list[float]]:
    """Scores of raw FC and of the model: kernel ridge, 10 folds, no covariates."""
    sets = {"raw FC": "raw", "this model": model.transform(cohort)}
    scores = score_table(evaluate(sets, cohort, list(TARGETS), motion=None), n_bootstrap=0)
    table = scores.set_index(["method", "target"])
    return {
        name: [float(table.loc[(name, target), score]) for target, score in TARGETS.items()]
        for name in sets
    }


def recognised(first: np.ndarray, second: np.ndarray) -> float:
    """Share of participants whose other session is the most correlated one, averaged over both ways."""
    r = np.corrcoef(first, second)[: len(first), len(first) :]
    own = np.arange(len(first))
    return float(((r.argmax(0) == own).mean() + (r.argmax(1) == own).mean()) / 2)


def paired(first: Cohort, second: Cohort) -> tuple[Cohort, Cohort]:
    """The participants of both sessions, in the same order."""
    places = {name: i for i, name in enumerate(second.participants["participant_id"])}
    ids = list(first.participants["participant_id"])
    rows = [i for i, name in enumerate(ids) if name in places]
    return first.subset(np.array(rows)), second.subset(np.array([places[ids[i]] for i in rows]))


def measured(ucla: Cohort, stages: Cohort, again: Cohort, model: NERVE) -> str:
    """The part of the card that numbers fill."""
    order = np.random.default_rng(0).permutation(len(ucla))
    half, rest = (ucla.subset(np.sort(rows)) for rows in np.array_split(order, 2))
    unseen = predicted(rest, train([half, stages]))
    lines = [
        "| features | participants | age r | sex AUC | diagnosis AUC |",
        "|---|---|---|---|---|",
    ]
    for who, table in (
        (f"UCLA, all {len(ucla)}", predicted(ucla, model)),
        (f"UCLA, {len(rest)} unseen", unseen),
    ):
        lines += [
            f"| {name} | {who} | {' | '.join(f'{one:.3f}' for one in row)} |"
            for name, row in table.items()
        ]
    both = paired(stages, again)
    never = train([ucla])
    raw = recognised(*(one.inputs("upper", np.arange(len(one))) for one in both))
    return MEASURED.format(
        table="\n".join(lines), n=len(both[0]), raw=raw, half=len(half), unseen=len(rest),
        model=recognised(*(never.transform(one) for one in both)),
    )  # fmt: skip


MEASURED = """
## Measured

By `python -m tools.make_shipped_model`, which made this file. Kernel ridge, 10 folds, no covariates. In the rows of
all participants of UCLA the model has seen everyone's FC, without labels. In the rows of unseen participants the same
recipe was trained on STAGES and the other {half} participants of UCLA. Diagnosis is any against none.

{table}

{n} participants of STAGES were scanned twice, three months apart. The other session is the most correlated one for
{raw:.0%} with raw FC, and for {model:.0%} with the same recipe trained on UCLA alone, which has seen nobody of STAGES.
"""
GOOD_FOR = """\
Good for features of a new cohort with the same 419 regions without training anything, offline, and for trying the
package.

Not the best features that can be had: tangent space and NERVE fitted on the cohort itself keep more of a
participant (docs/what-nerve-learns.md). Not for recognising participants, nor for diagnosis; not for other
parcellations, for Fisher z, or for FC with the global signal left in; not tried on children or old people."""
ABOUT = """
## Who, and which preprocessing

- UCLA Consortium for Neuropsychiatric Phenomics (ds000030, CC0): {n_ucla} adults of {low:.0f} to {high:.0f} years,
  healthy or with schizophrenia, bipolar disorder or ADHD. FC as CBIG published it for Kebets et al. 2019 (MIT). Cite
  Poldrack et al., Scientific Data 3, 160110 (2016) and Kebets et al., Biological Psychiatry 86, 779-791 (2019).
- STAGES (Apache-2.0), first session: {n_stages} patients. FC by Pearson correlation of the published time series
  (`dt_AROMA_8Phys-4GMR_bpf`). Cite Pope et al. (2025).

Regions: Schaefer 400 in 17-network order and the 19 subcortical regions of CBIG, matched by label. Values: Pearson r,
not Fisher z. {negative:.0%} of the entries are negative, as after global-signal regression. `nerve check COHORT --model
{name}` says whether a cohort looks like them.
{measured}
## What is in the file

Weights, the mean FC and its whitening, {directions} directions in which participants differ and {components} components
of their tokens, in half precision: statistics of {n} participants, nobody's matrix and nobody's features.

```python
encoder = nerve.NERVE.from_pretrained("{name}")
features = encoder.transform(cohort)
```
"""


def group_only(model: NERVE, n: int) -> None:
    """Refuse a model in which an array has a row or column per participant, or as many directions as participants."""
    shapes = {name: tuple(tensor.shape) for name, tensor in model.tensors().items()}
    held = [name for name, shape in shapes.items() if n in shape]
    if held or max(shapes["view.directions"][1], shapes["components"][1]) > n // 4:
        raise problem(
            NAME, f"{held or shapes} could hold participants", expected="statistics of the group"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ucla", help="the cohort folder of UCLA CNP, 419 regions")
    parser.add_argument("stages", help="that of STAGES, first session")
    parser.add_argument(
        "--again", required=True, help="that of STAGES, second session; only measured with"
    )
    parser.add_argument("--out", type=Path, default=PACKAGED / f"{NAME}.zip")
    chosen = parser.parse_args()
    ucla, stages, again = (Cohort.load(path) for path in (chosen.ucla, chosen.stages, chosen.again))
    model, n = train([ucla, stages]), len(ucla) + len(stages)
    group_only(model, n)
    assert model.signature_ is not None
    about = ABOUT.format(
        name=NAME, n=n, negative=model.signature_.negative, measured=measured(ucla, stages, again, model),
        directions=SETTINGS["n_directions"], components=SETTINGS["n_components"], n_ucla=len(ucla),
        n_stages=len(stages), low=ucla.participants["age"].min(), high=ucla.participants["age"].max(),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="nerve-") as folder:
        run = model.save(Path(folder) / NAME)
        card = (run / CARD).read_text(encoding="utf-8")
        write_text(run / CARD, card.replace(model.purpose(), GOOD_FOR) + about)
        size = pack(run, Path(folder) / f"{NAME}.zip", half=True).stat().st_size
        if size > MOST:
            raise problem(NAME, f"the archive has {size:,} bytes", expected=f"at most {MOST:,}")
        pack(run, chosen.out, half=True)
    print(about)
    print(f"{chosen.out}: {size:,} bytes")


if __name__ == "__main__":
    main()
