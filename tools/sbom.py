"""Write a bill of materials (CycloneDX 1.5, JSON) and docs/licences.md from the installed packages.

python tools/sbom.py --out sbom.json --licences docs/licences.md

Both are the same for the same environment: no time stamp, no serial number, everything sorted.
"""

import argparse
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nerve._utils.files import write_json, write_text

ROOT = "nerve-fc"
# What users may install; docs and dev are for developers.
EXTRAS = ("fmri", "slurm", "excel", "tables", "tensorboard", "hub")
PAGE = """# Licences

For users who must know the licences of what they install. nerve is under the MIT licence. It installs the packages
below, each under its own licence. `make sbom` writes this table and `sbom.json` (CycloneDX) from the installed packages.
Versions are those of `constraints.txt`.

| package | version | licence | needed by |
|---|---|---|---|
"""


def closure(root: str = ROOT, extras: tuple[str, ...] = EXTRAS) -> dict[str, Distribution]:
    """Every installed distribution that the package and its extras require, by canonical name.

    The package itself comes first.
    """
    distributions = {canonicalize_name(root): distribution(root)}
    visited: set[tuple[str, str]] = set()
    waiting = [(canonicalize_name(root), extra) for extra in ("", *extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in visited:
            continue
        visited.add((name, extra))
        package = distributions[name]
        for requirement in map(Requirement, package.requires or []):
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
                continue
            needed = canonicalize_name(requirement.name)
            if needed not in distributions:
                distributions[needed] = _installed(requirement.name, package.metadata["Name"])
            waiting += [(needed, wanted) for wanted in ("", *requirement.extras)]
    return distributions


def _installed(name: str, wanted_by: str) -> Distribution:
    """An installed package; ends the program if it is missing."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        sys.exit(
            f"{name}, which {wanted_by} needs, is not installed here: run `make .venv/dev` first."
        )


def version(package: Distribution) -> str:
    """The version without the name of a local build (torch calls its CPU build 2.13.0+cpu)."""
    return package.version.partition("+")[0]


def licence(package: Distribution) -> str:
    """The licence that a package states: an expression, a classifier, or the first line of a text."""
    metadata = package.metadata
    if metadata.get("License-Expression"):
        return str(metadata["License-Expression"])
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in metadata.get_all("Classifier") or []
        if "License ::" in line
    ]
    named = [name for name in classifiers if name not in ("OSI Approved", "DFSG approved")]
    if named:
        return ", ".join(named)
    return (metadata.get("License") or "not stated").strip().splitlines()[0][:80]


def bill(packages: dict[str, Distribution]) -> dict[str, Any]:
    """A CycloneDX document: components and their dependencies."""
    root, *others = packages
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": _component(packages[root], "application")},
        "components": [_component(packages[name], "library") for name in sorted(others)],
        "dependencies": [
            {
                "ref": _url(packages[name]),
                "dependsOn": sorted(
                    _url(packages[needed]) for needed in _direct_dependencies(packages, name)
                ),
            }
            for name in sorted(packages)
        ],
    }


def _component(package: Distribution, kind: str) -> dict[str, Any]:
    licence_text = licence(package)
    is_expression = bool(package.metadata.get("License-Expression"))
    return {
        "type": kind,
        "bom-ref": _url(package),
        "name": package.metadata["Name"],
        "version": version(package),
        "purl": _url(package),
        "licenses": [
            {"expression": licence_text} if is_expression else {"license": {"name": licence_text}}
        ],
    }


def _url(package: Distribution) -> str:
    return f"pkg:pypi/{canonicalize_name(package.metadata['Name'])}@{version(package)}"


def _direct_dependencies(packages: dict[str, Distribution], name: str) -> set[str]:
    needed = {canonicalize_name(Requirement(line).name) for line in packages[name].requires or []}
    return needed & set(packages) - {name}


def licence_page(packages: dict[str, Distribution]) -> str:
    """The text of docs/licences.md."""
    core = closure(extras=())
    rows = [
        f"| {package.metadata['Name']} | {version(package)} | {licence(package)} | "
        f"{'nerve' if name in core else 'an extra'} |"
        for name, package in sorted(packages.items())
        if name != canonicalize_name(ROOT)
    ]
    return PAGE + "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="where the bill of materials goes")
    parser.add_argument("--licences", type=Path, help="where the page of licences goes")
    arguments = parser.parse_args()
    packages = closure()
    if arguments.out:
        write_json(arguments.out, bill(packages))
    if arguments.licences:
        write_text(arguments.licences, licence_page(packages))
    print(f"{len(packages) - 1} packages")


if __name__ == "__main__":
    main()
