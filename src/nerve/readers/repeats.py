"""One person never counts twice unnoticed: the scans of each person are averaged, or one is chosen by a stated rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nerve.checks import NerveError, listed, one_of
from nerve.readers.base import Options, Scan
from nerve.readers.ids import natural_key, normal_id

RULES = ("average", "first", "last", "refuse")


def filter_scans(scans: Sequence[Scan], options: Options) -> list[Scan]:
    """The scans of the session and task that the user asked for, with normalised ids."""
    kept = [replace(scan, participant=normal_id(scan.participant)) for scan in scans]
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
    """Scans by person, in natural order of ids, as the rule leaves them; and what to tell the user.

    Parameters
    ----------
    scans : sequence of Scan
        With normalised ids.
    rule : {"average", "first", "last", "refuse"}
        Keep all (they are averaged in Fisher z after reading), the first or last by session and run, or refuse.
    """
    one_of("repeats", rule, RULES)
    people: dict[str, list[Scan]] = {}
    for scan in sorted(scans, key=_order):
        people.setdefault(scan.participant, []).append(scan)
    several = [person for person, theirs in people.items() if len(theirs) > 1]
    if not several:
        return people, []
    if rule == "refuse":
        example = listed([scan.path.name for scan in people[several[0]]], most=3)
        raise NerveError(
            f"{len(several)} participants have several scans ({listed(several, most=3)}; for {several[0]}: {example}), "
            "expected one each. Choose with --session, --task or --repeats average|first|last."
        )
    if rule in ("first", "last"):
        pick = 0 if rule == "first" else -1
        people = {person: [theirs[pick]] for person, theirs in people.items()}
    verb = "averaged in Fisher z" if rule == "average" else f"reduced to the {rule} one by session and run"
    return people, [f"{len(several)} participants have several scans, {verb} (--repeats {rule})"]


def _order(scan: Scan) -> tuple[object, ...]:
    return tuple(natural_key(word) for word in (scan.participant, scan.session, scan.task, scan.run, str(scan.path)))
