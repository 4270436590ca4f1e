"""Refuse a release with placeholders, or whose version, changelog and citation disagree.

python tools/check_release.py
"""

import re
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
OWNER = re.compile(r"//OWNER\.|/OWNER/nerve")  # as a part of an address
DOI = "10.5281/zenodo.0000000"


def problems(root: Path) -> list[str]:
    """What prevents a release of this checkout, one sentence each."""
    sentences = []
    for name in ("pyproject.toml", "CITATION.cff"):
        text = (root / name).read_text(encoding="utf-8")
        if OWNER.search(text):
            sentences.append(f"{name}: OWNER is a placeholder. Write the account in its place.")
        if DOI in text:
            sentences.append(f"{name}: the DOI {DOI} is a placeholder. Reserve one.")
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    cited = str(yaml.safe_load((root / "CITATION.cff").read_text())["version"])
    if cited != version:
        sentences.append(f"CITATION.cff: the version is {cited}, that of pyproject.toml {version}.")
    section = re.search(r"^## (\S+) \((.*)\)$", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    if section is None or section[1] != version:
        sentences.append(f"CHANGELOG.md: the topmost section is not that of {version}.")
    elif not re.fullmatch(r"\d{4}-\d\d-\d\d", section[2]):
        sentences.append(
            f"CHANGELOG.md: {version} is {section[2]!r}, expected the day, as 2027-01-31."
        )
    return sentences


def main() -> None:
    sentences = problems(ROOT)
    for sentence in sentences:
        print(sentence)
    if sentences:
        sys.exit(1)
    print("Nothing stands in the way of a release.")


if __name__ == "__main__":
    main()
