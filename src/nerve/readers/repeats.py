"""One participant never counts twice unnoticed: scans are averaged, or one is chosen by a stated rule."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nerve.checks import NerveError, listed
from nerve.readers.base import Options, Scan
from nerve.readers.ids import counted, natural_key, normal_id
from nerve.readers.names import inside


def named_by(pattern: str | None, scans: Sequence[Scan], root: Path) -> list[Scan]:
    """The scans with the participants (and session, task, run) that the user's `--id-pattern` finds in their paths.

    Files that it does not match are left out; entries of one file keep the ids that the file gives them.
    """
    if pattern is None:
        return list(scans)
    named = [_named(re.compile(pattern), scan, root) for scan in scans]
    if not any(not scan.left_out for scan in named):
        paths = listed([inside(scan.path, root) for scan in scans], most=3)
        raise NerveError(f"--id-pattern is {pattern!r} and matches none of {len(scans)} files ({paths}).")
    return named


def _named(pattern: re.Pattern[str], scan: Scan, root: Path) -> Scan:
    if scan.key is not None or scan.left_out:
        return scan
    found = pattern.search(inside(scan.path, root))
    if not found or not found["id"]:
        return replace(scan, left_out="--id-pattern does not match it")
    groups: dict[str, Any] = {key: found[key] or "" for key in ("session", "task", "run") if key in pattern.groupindex}
    return replace(scan, participant=found["id"], **groups)


def filter_scans(scans: Sequence[Scan], options: Options) -> list[Scan]:
    """The scans of the session and task that the user asked for, with normalised ids."""
    kept = [replace(scan, participant=normal_id(scan.participant)) for scan in scans if not scan.left_out]
    for name in ("session", "task"):
        wanted = getattr(options, name)
        if wanted is None:
            continue
        wanted = str(wanted).removeprefix("ses-").removeprefix("task-")
        present = sorted({getattr(scan, name) for scan in kept if getattr(scan, name)}, key=natural_key)
        kept = [scan for scan in kept if getattr(scan, name) == wanted]
        if not kept:
            choices = f"one of {listed(present)}" if present else f"none, since the files name no {name}"
            raise NerveError(f"--{name} is {wanted!r} and no scan has it, expected {choices}.")
    return kept


def group_scans(scans: Sequence[Scan], rule: str = "average") -> tuple[dict[str, list[Scan]], list[str]]:
    """Scans by participant, in natural order of ids, as the rule leaves them; and what to tell the user.

    Parameters
    ----------
    scans : sequence of Scan
        With normalised ids.
    rule : {"average", "first", "last", "refuse"}
        Keep all (they are averaged in Fisher z after reading), the first or last by session and run, or refuse.
    """
    people: dict[str, list[Scan]] = {}
    for scan in sorted(scans, key=_order):
        people.setdefault(scan.participant, []).append(scan)
    several = [person for person, theirs in people.items() if len(theirs) > 1]
    if not several:
        return people, []
    who = f"{counted(len(several))} {'has' if len(several) == 1 else 'have'}"
    if rule == "refuse":
        example = listed([scan.path.name for scan in people[several[0]]], most=3)
        raise NerveError(
            f"{who} several scans ({listed(several, most=3)}; for {several[0]}: {example}), "
            "expected one each. Choose with --session, --task or --repeats average|first|last."
        )
    if rule in ("first", "last"):
        pick = 0 if rule == "first" else -1
        people = {person: [theirs[pick]] for person, theirs in people.items()}
    verb = "averaged in Fisher z" if rule == "average" else f"reduced to the {rule} one by session and run"
    return people, [f"{who} several scans, {verb} (--repeats {rule})"]


def _order(scan: Scan) -> tuple[object, ...]:
    return tuple(natural_key(word) for word in (scan.participant, scan.session, scan.task, scan.run, str(scan.path)))
