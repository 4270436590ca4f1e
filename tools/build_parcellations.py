"""Write the package's tables of the Schaefer and 4S atlases from the published facts.

    python tools/build_parcellations.py FACTS_FOLDER

Sources of the facts: CBIG's release of the Schaefer-2018 parcellation (MIT licence), Schaefer et al. 2018
(Cerebral Cortex), networks of Yeo et al. 2011 (J Neurophysiol); PennLINC's AtlasPack for the 4S atlases. The other
tables were copied from the places that docs/reference/atlases.md names.
"""

import sys
from pathlib import Path

import pandas as pd

OUT = Path(__file__).parent.parent / "src" / "nerve" / "data" / "atlases"

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

# The 4S atlases: Schaefer in 7-network order, and the same 56 regions in all sizes. Only these need a table.
below = None
for n_regions in range(100, 1001, 100):
    facts = pd.read_csv(
        Path(sys.argv[1]) / "4s" / f"atlas-4S{n_regions + 56}Parcels_dseg.tsv", sep="\t"
    )
    cortex, rest = facts.iloc[:n_regions], facts.iloc[n_regions:].reset_index(drop=True)
    seven = pd.read_csv(OUT / f"schaefer{n_regions}.tsv", sep="\t").sort_values("position_7")
    if not all(seven["label_7"].to_numpy() == cortex["label_7network"].to_numpy()):
        sys.exit(f"4S{n_regions + 56} is not Schaefer-{n_regions} in 7-network order")
    cerebellum = rest["atlas_name"] == "Cerebellum"
    table = pd.DataFrame(
        {
            "label": rest["label"],
            "network": cerebellum.map({True: "Cerebellum", False: "Subcortical"}),
            "hemisphere": rest["label"].str[0].where(~cerebellum, ""),
        }
    )
    if below is not None and not table.equals(below):
        sys.exit("the 4S atlases differ below the cortex")
    below = table
below.to_csv(OUT / "4s_below.tsv", sep="\t", index=False, lineterminator="\n")
