"""Everyone of a plan, read in parallel, with an account of who is left out and of what readers say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveError
from nerve.measures import in_words
from nerve.progress import tracked
from nerve.readers.base import Scan
from nerve.readers.matrices import describe_missing, missing_regions
from nerve.readers.missing import MOST_MISSING
from nerve.readers.parallel import in_order
from nerve.readers.person import Person, Recipe, read_person, scan_name
from nerve.readers.planning import Plan
from nerve.readers.settings import Settings


class PeopleReader:
    """Reads the participants of a plan, keeping account of who is left out and of what readers say."""

    def __init__(self, plan: Plan, settings: Settings) -> None:
        self.plan = plan
        self.settings = settings
        self.excluded = dict(plan.excluded)
        self.has_series: bool | None = None  # as the first participant has it, everyone must
        self.measure: str | None = None  # likewise
        self.said: Counter[str] = Counter()
        self.rows: list[dict[str, Any]] = []

    def usable(self) -> Iterator[Person]:
        """Participants with a matrix of which at most half is missing."""
        for person in self._read():
            self.said.update(person.notes)
            if person.doubt:
                raise NerveError(person.doubt)
            if person.matrix is None:
                self._exclude(person, person.reason)
                continue
            if not self._fits_measure(person) or not self._fits_series(person):
                continue
            missing = missing_regions(person.matrix)
            if missing.mean() > MOST_MISSING:
                self._exclude(person, self._missing_phrase(person, missing))
                continue
            yield person
            self._note_row(person, int(missing.sum()))

    def complete(self) -> Iterator[Person]:
        """Participants with data in every region."""
        for person in self.usable():
            assert person.matrix is not None
            missing = missing_regions(person.matrix)
            if missing.any():
                phrase = self._missing_phrase(person, missing)
                self._exclude(
                    person, f"{phrase}; --missing drop-region or impute-group-mean would keep the participant"
                )
            else:
                yield person

    def nobody_left(self) -> NerveError:
        """Why there is no cohort to write."""
        reasons = [reason for person, reason in self.excluded.items() if person in self.plan.people]
        if not reasons:
            return NerveError("No participant is left, nothing was written.")
        first = f"{reasons[0].rstrip('.')}."
        if len(reasons) == 1:
            return NerveError(f"The only participant was left out, nothing was written: {first}")
        return NerveError(f"All {len(reasons)} participants were left out, nothing was written. The first: {first}")

    def table(self) -> pd.DataFrame:
        """The rows of the participants who were used, with what their files told of motion, volumes and scans."""
        rows = pd.DataFrame(self.rows)
        table = self.plan.table.set_index("participant_id").loc[rows["participant_id"]].reset_index()
        if rows["mean_fd"].notna().any():
            read = rows["mean_fd"].to_numpy()
            table["mean_fd"] = table["mean_fd"].fillna(pd.Series(read)) if "mean_fd" in table.columns else read
        for name, common in (("n_volumes", 0), ("n_scans", 1), ("n_missing_regions", 0)):
            if (rows[name] != common).any() and name not in table.columns:
                table[name] = rows[name].to_numpy()
        return table

    def _fits_measure(self, person: Person) -> bool:
        """Whether the participant's matrix holds what that of the first participant holds."""
        self.measure = self.measure or person.measure
        if person.measure != self.measure:
            self._exclude(person, f"it holds {in_words(person.measure)}, the others {in_words(self.measure)}")
        return person.measure == self.measure

    def _fits_series(self, person: Person) -> bool:
        """Whether the participant has a time series if the others have; a series that the others lack is let go."""
        if self.has_series is None:
            self.has_series = person.series is not None
            if self.settings.timeseries and not self.has_series:
                self.said["the source has no time series to keep (--timeseries)"] += 1
        if self.has_series and person.series is None:
            where = scan_name(self.plan.people[person.participant][0])
            self._exclude(person, f"{where}: it has no time series, which the others have (--no-timeseries keeps it)")
            return False
        if not self.has_series:
            person.series = None
        return True

    def _missing_phrase(self, person: Person, missing: np.ndarray) -> str:
        first = self.plan.people[person.participant][0]
        return f"{scan_name(first)}: {describe_missing(missing, self.plan.recipe.regions.target.labels)}"

    def _exclude(self, person: Person, reason: str) -> None:
        if self.settings.strict:
            raise NerveError(f"Participant {person.participant}: {reason}" + ("" if reason.endswith(".") else "."))
        self.excluded[person.participant] = reason

    def _note_row(self, person: Person, n_missing: int) -> None:
        if person.participant not in self.excluded:
            self.rows.append(
                {
                    "participant_id": person.participant,
                    "mean_fd": person.mean_fd,
                    "n_volumes": person.n_volumes,
                    "n_scans": person.n_scans,
                    "n_missing_regions": n_missing,
                }
            )

    def _read(self) -> Iterator[Person]:
        people = self.plan.people
        stacked = any(scan.key is not None for scans in people.values() for scan in scans)
        jobs = 1 if stacked else self.settings.jobs  # one open file is read by one process
        results = in_order(partial(_read_item, self.plan.recipe), people.items(), len(people), jobs)
        return iter(_tracked(results, len(people), self.settings.progress))


def _read_item(recipe: Recipe, item: tuple[str, list[Scan]]) -> Person:
    return read_person(recipe, *item)


def _tracked(results: Iterable[Person], total: int, shown: bool) -> Iterator[Person]:
    """The results, with progress while they come."""
    results = iter(results)
    first = list(islice(results, 1))  # so that reading processes are forked before progress starts its thread
    yield from tracked(chain(first, results), "reading", total, unit="participants", shown=shown)
