"""Make the model that comes with the package, and measure it: one command, from two open cohorts of 419 regions.

    python -m studies.real_cohorts --data FOLDER --out cohorts ucla stages stages-again
    python -m tools.make_shipped_model cohorts/ucla cohorts/stages --again cohorts/stages-again

writes src/nerve/pretrained/nerve-small-419.zip. Its card holds what was measured. No participant's data are in it:
`refuse_participants` checks that no array could hold them.
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

NAME = "nerve-small-419"
MOST_BYTES = 5 * 2**20
# Few, so that the file is small.
SETTINGS: dict[str, Any] = {
    "n_directions": 16,
    "n_components": 32,
    "dim": 32,
    "device": "cpu",
}
TARGETS = {"age": "r", "sex": "auc", "diagnosis": "auc"}


def train(cohorts: list[Cohort]) -> NERVE:
    """Train by the recipe of the shipped model."""
    return NERVE.from_preset("small", **SETTINGS).fit(cohorts)


# ---- measurements for the card


def prediction_scores(cohort: Cohort, model: NERVE) -> dict[str, list[float]]:
    """Scores of raw FC and of the model: kernel ridge, 10 folds, no covariates."""
    features = {"raw FC": "raw", "this model": model.transform(cohort)}
    scores = score_table(evaluate(features, cohort, list(TARGETS), motion=None), n_bootstrap=0)
    table = scores.set_index(["method", "target"])
    return {
        name: [float(table.loc[(name, target), score]) for target, score in TARGETS.items()]
        for name in features
    }


def recognised_share(first: np.ndarray, second: np.ndarray) -> float:
    """Share of participants whose other session is the most correlated one, averaged over both ways."""
    r = np.corrcoef(first, second)[: len(first), len(first) :]
    own = np.arange(len(first))
    share_of_first = (r.argmax(1) == own).mean()
    share_of_second = (r.argmax(0) == own).mean()
    return float((share_of_second + share_of_first) / 2)


def in_both_sessions(first: Cohort, second: Cohort) -> tuple[Cohort, Cohort]:
    """The participants of both sessions, in the same order."""
    places = {name: i for i, name in enumerate(second.participants["participant_id"])}
    ids = list(first.participants["participant_id"])
    rows = [i for i, name in enumerate(ids) if name in places]
    rows_in_second = [places[ids[i]] for i in rows]
    return first.subset(np.array(rows)), second.subset(np.array(rows_in_second))


def measured_section(ucla: Cohort, stages: Cohort, again: Cohort, model: NERVE) -> str:
    """The section of the card that holds measurements."""
    order = np.random.default_rng(0).permutation(len(ucla))
    half_rows, unseen_rows = np.array_split(order, 2)
    half = ucla.subset(np.sort(half_rows))
    unseen = ucla.subset(np.sort(unseen_rows))
    scores_of_unseen = prediction_scores(unseen, train([half, stages]))
    scores = {
        f"UCLA, all {len(ucla)}": prediction_scores(ucla, model),
        f"UCLA, {len(unseen)} unseen": scores_of_unseen,
    }
    lines = [
        "| features | participants | age r | sex AUC | diagnosis AUC |",
        "|---|---|---|---|---|",
    ]
    for participants, table in scores.items():
        for name, values in table.items():
            cells = " | ".join(f"{value:.3f}" for value in values)
            lines.append(f"| {name} | {participants} | {cells} |")
    first, second = in_both_sessions(stages, again)
    of_ucla = train([ucla])
    everyone = np.arange(len(first))
    raw = recognised_share(first.inputs("upper", everyone), second.inputs("upper", everyone))
    learned = recognised_share(of_ucla.transform(first), of_ucla.transform(second))
    return MEASURED.format(
        table="\n".join(lines), n=len(first), raw=raw, half=len(half), unseen=len(unseen),
        model=learned,
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


def refuse_participants(model: NERVE, n: int) -> None:
    """Refuse a model whose arrays could hold participants.

    None may have a row or column per participant, nor may there be nearly as many directions as
    participants.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in model.tensors().items()}
    per_participant = [name for name, shape in shapes.items() if n in shape]
    n_directions = max(shapes["view.directions"][1], shapes["components"][1])
    if per_participant or n_directions > n // 4:
        raise problem(
            NAME,
            f"{per_participant or shapes} could hold participants",
            expected="statistics of the group",
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
    arguments = parser.parse_args()
    ucla = Cohort.load(arguments.ucla)
    stages = Cohort.load(arguments.stages)
    again = Cohort.load(arguments.again)
    model = train([ucla, stages])
    n = len(ucla) + len(stages)
    refuse_participants(model, n)
    assert model.signature_ is not None
    about = ABOUT.format(
        name=NAME, n=n, negative=model.signature_.negative, measured=measured_section(ucla, stages, again, model),
        directions=SETTINGS["n_directions"], components=SETTINGS["n_components"], n_ucla=len(ucla),
        n_stages=len(stages), low=ucla.participants["age"].min(), high=ucla.participants["age"].max(),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="nerve-") as folder:
        run = model.save(Path(folder) / NAME)
        card = (run / CARD).read_text(encoding="utf-8")
        write_text(run / CARD, card.replace(model.purpose(), GOOD_FOR) + about)
        size = pack(run, Path(folder) / f"{NAME}.zip", half=True).stat().st_size
        if size > MOST_BYTES:
            raise problem(
                NAME, f"the archive has {size:,} bytes", expected=f"at most {MOST_BYTES:,}"
            )
        pack(run, arguments.out, half=True)
    print(about)
    print(f"{arguments.out}: {size:,} bytes")


if __name__ == "__main__":
    main()
