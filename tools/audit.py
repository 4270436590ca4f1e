"""Known vulnerabilities of the pinned versions, by pip-audit, and plainly whether anybody answered.

python tools/audit.py [constraints.txt]

Ends with 0: all were looked up and none is known; 1: some are known; 2: some could not be looked up; 3: none could.
pip-audit itself ends with 0 when no package at all could be looked up, which says nothing.
"""

import importlib.util
import json
import subprocess
import sys

CLEAN, VULNERABLE, PARTLY, NOT_RUN = 0, 1, 2, 3


def verdict(packages: list[dict]) -> tuple[int, str]:
    """The exit code and the words for what pip-audit found of each package."""
    known = [
        f"{package['name']} {package['version']}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or 'none'}"
        for package in packages
        for flaw in package.get("vulns", [])
    ]
    skipped = [package for package in packages if "skip_reason" in package]
    looked_up = len(packages) - len(skipped)
    if looked_up == 0:
        return (
            NOT_RUN,
            f"Nothing was audited: the service knew none of the {len(packages)} packages. Is there a network?",
        )
    said = f"{looked_up} of {len(packages)} packages were looked up, {len(known)} vulnerabilities are known."
    if known:
        return VULNERABLE, "\n".join([said, *known])
    if skipped:
        return PARTLY, f"{said} Not looked up: {', '.join(package['name'] for package in skipped)}."
    return CLEAN, said


def audited(constraints: str) -> tuple[int, str]:
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
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", *options], capture_output=True, text=True
    )
    try:
        return verdict(json.loads(done.stdout)["dependencies"])
    except (ValueError, KeyError):
        reason = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        return NOT_RUN, f"Nothing was audited: pip-audit could not do its work ({reason})."


if __name__ == "__main__":
    code, words = audited(sys.argv[1] if len(sys.argv) > 1 else "constraints.txt")
    print(words)
    sys.exit(code)
