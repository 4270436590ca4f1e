"""Make the model that comes with the package: one command, from two open cohorts of 419 regions.

    nerve ingest UCLA_CNP cohorts/ucla --parcellation schaefer400-17+aseg19
    nerve ingest STAGES cohorts/stages --parcellation schaefer400-17+aseg19
    python tools/make_shipped_model.py cohorts/ucla cohorts/stages

writes src/nerve/pretrained/nerve-small-419.zip. UCLA CNP is CC0, STAGES Apache-2.0; both are cited in the card. A model
that would make the package larger than a few megabytes is refused. It has not been run for a release yet.
"""

import argparse
import tempfile
from pathlib import Path

from nerve.checks import problem
from nerve.files import write_text
from nerve.methods.archive import pack
from nerve.methods.base import CARD
from nerve.methods.pretrained import PACKAGED
from nerve.methods.runs import pretrain

NAME, MOST = "nerve-small-419", 8 * 2**20  # bytes
SETTINGS = ("n_components=32", "device=cpu")  # 256 components of every token would be most of the file
ABOUT = """
## Training cohorts

- UCLA Consortium for Neuropsychiatric Phenomics (CC0): Poldrack et al., Scientific Data 3, 160110 (2016).
- STAGES (Apache-2.0).

FC as published with the cohorts: Schaefer 400 in 17-network order and 19 subcortical regions, Pearson r. `nerve check
COHORT --model nerve-small-419` says whether a cohort looks like them.

## Good for, and not

Features of a new cohort with the same 419 regions, without training. What they predict has to be measured beside raw FC
and PCA (`nerve evaluate`); no advantage is claimed. Not for diagnosis.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohorts", nargs="+", help="cohort folders of 419 regions")
    parser.add_argument("--out", type=Path, default=PACKAGED / f"{NAME}.zip")
    parser.add_argument("--set", action="append", default=[], help="settings over the preset small, as key=value")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nerve-") as folder:
        run = Path(folder) / NAME
        pretrain(chosen.cohorts, run, preset="small", assignments=[*SETTINGS, *chosen.set])
        write_text(run / CARD, (run / CARD).read_text(encoding="utf-8") + ABOUT)
        archive = pack(run, Path(folder) / f"{NAME}.zip")
        if archive.stat().st_size > MOST:
            raise problem(NAME, f"the archive has {archive.stat().st_size:,} bytes", expected=f"at most {MOST:,}")
        pack(run, chosen.out)
    print(f"{chosen.out}: {chosen.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
