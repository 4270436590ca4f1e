"""Write the package's own atlas tables from the published facts.

    python tools/build_parcellations.py FACTS_FOLDER

Source of the facts: CBIG's release of the Schaefer-2018 parcellation (MIT licence), Schaefer et al. 2018
(Cerebral Cortex), networks of Yeo et al. 2011 (J Neurophysiol).
"""

import sys
from pathlib import Path

import pandas as pd

OUT = Path(__file__).parent.parent / "src" / "nerve" / "parcellations"

for n_regions in range(100, 1001, 100):
    facts = pd.read_csv(Path(sys.argv[1]) / "schaefer" / f"schaefer{n_regions}.tsv", sep="\t")
    table = pd.DataFrame(
        {
            "label_17": facts["label17"],
            "network_17": facts["network17"],
            "position_7": facts["index7"],
            "label_7": facts["label7"],
            "network_7": facts["network7"],
            "hemisphere": facts["hemisphere"].str[0],
            "x": facts["x"],
            "y": facts["y"],
            "z": facts["z"],
        }
    )
    table.to_csv(OUT / f"schaefer{n_regions}.tsv", sep="\t", index=False, lineterminator="\n")
