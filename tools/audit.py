"""Look up known vulnerabilities of the pinned versions with pip-audit.

python tools/audit.py [constraints.txt]

Exit code 0: all packages were looked up and no vulnerability is known; 1: some are known; 2: some
packages could not be looked up; 3: none could. pip-audit itself ends with 0 when no package at all
could be looked up, which says nothing.
"""

import importlib.util
import json
import subprocess
import sys

# Exit codes.
CLEAN = 0
VULNERABLE = 1
PARTLY = 2
NOT_RUN = 3


def verdict(packages: list[dict]) -> tuple[int, str]:
    """The exit code and the message for what pip-audit reports of each package."""
    vulnerabilities = []
    for package in packages:
        for vulnerability in package.get("vulns", []):
            versions = ", ".join(vulnerability["fix_versions"]) or "none"
            vulnerabilities.append(
                f"{package['name']} {package['version']}: {vulnerability['id']}, fixed in {versions}"
            )
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    n_looked_up = len(packages) - len(skipped)
    if n_looked_up == 0:
        return (
            NOT_RUN,
            f"Nothing was audited: the service knew none of the {len(packages)} packages. "
            "Is there a network?",
        )
    summary = (
        f"{n_looked_up} of {len(packages)} packages were looked up, "
        f"{len(vulnerabilities)} vulnerabilities are known."
    )
    if vulnerabilities:
        return VULNERABLE, "\n".join([summary, *vulnerabilities])
    if skipped:
        return PARTLY, f"{summary} Not looked up: {', '.join(skipped)}."
    return CLEAN, summary


def audit(constraints: str) -> tuple[int, str]:
    """Run pip-audit on a file of pinned versions; nothing is installed."""
    if importlib.util.find_spec("pip_audit") is None:
        return NOT_RUN, "Nothing was audited: pip-audit is not installed (pip install pip-audit)."
    options = [
        "--requirement",
        constraints,
        "--no-deps",
        "--disable-pip",
        "--format",
        "json",
        "--progress-spinner",
        "off",
    ]
    process = subprocess.run(
        [sys.executable, "-m", "pip_audit", *options], capture_output=True, text=True
    )
    try:
        return verdict(json.loads(process.stdout)["dependencies"])
    except (ValueError, KeyError):
        lines = process.stderr.strip().splitlines()
        reason = lines[-1] if lines else f"it ended with {process.returncode}"
        return NOT_RUN, f"Nothing was audited: pip-audit failed ({reason})."


if __name__ == "__main__":
    code, message = audit(sys.argv[1] if len(sys.argv) > 1 else "constraints.txt")
    print(message)
    sys.exit(code)
