"""Everyone of a plan, read in parallel, with an account of who is left out and of what readers say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveError
from nerve.measures import in_words
from nerve.progress import tracked
from nerve.readers.matrices import describe_missing
from nerve.readers.missing import MOST_MISSING
from nerve.readers.parallel import in_order
from nerve.readers.person import Person, read_person
from nerve.readers.planning import Plan

_ADVICE = "; --missing drop-region or impute-group-mean would keep the participant"


class PeopleReader:
    """Reads the participants of a plan, keeping account of who is left out and of what readers say."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.options = plan.recipe.options
        self.excluded = dict(plan.excluded)
        self.first: Person | None = None  # what it holds, everyone must
        self.said: Counter[str] = Counter()
        self.rows: list[dict[str, Any]] = []

    def __iter__(self) -> Iterator[Person]:
        """Participants with a matrix of which nothing is missing, or at most half where `--missing` allows it."""
        for person in self._read():
            self.said.update(person.notes)
            if person.doubt:
                raise NerveError(person.doubt)
            missing = np.isnan(person.matrix.diagonal())
            reason = person.reason or self._unlike_others(person) or self._too_much(person, missing)
            if not reason:
                yield person
                kept = ("participant", "mean_fd", "n_volumes", "n_scans")
                self.rows.append({name: getattr(person, name) for name in kept} | {"n_missing_regions": missing.sum()})
            elif self.options.strict:
                raise NerveError(f"Participant {person.participant}: {reason}" + ("" if reason.endswith(".") else "."))
            else:
                self.excluded[person.participant] = reason

    def nobody_left(self) -> NerveError:
        """Why there is no cohort to write."""
        reasons = [f"participant {who}: {why}" for who, why in self.excluded.items() if who in self.plan.people]
        if not reasons:
            return NerveError("No participant is left, nothing was written.")
        first = f"{reasons[0].rstrip('.')}."
        if len(reasons) == 1:
            return NerveError(f"The only participant was left out, nothing was written: {first}")
        return NerveError(f"All {len(reasons)} participants were left out, nothing was written. The first: {first}")

    def table(self) -> pd.DataFrame:
        """The rows of the participants who were used, with what their files told of motion, volumes and scans."""
        rows = pd.DataFrame(self.rows)
        table = self.plan.table.set_index("participant_id").loc[rows["participant"]].reset_index()
        if rows["mean_fd"].notna().any():
            table["mean_fd"] = table.get("mean_fd", rows["mean_fd"]).fillna(rows["mean_fd"])
        for name, common in (("n_volumes", 0), ("n_scans", 1), ("n_missing_regions", 0)):
            if (rows[name] != common).any() and name not in table.columns:
                table[name] = rows[name]
        return table

    def _unlike_others(self, person: Person) -> str:
        """What a participant's scans lack that those of the first hold; a time series that only they have is let go."""
        if self.first is None:
            self.first = person
            if self.options.timeseries and person.series is None:
                self.said["the source has no time series to keep (--timeseries)"] += 1
        if person.measure != self.first.measure:
            return f"it holds {in_words(person.measure)}, the others {in_words(self.first.measure)}"
        if self.first.series is None:
            person.series = None
        elif person.series is None:
            return "it has no time series, which the others have (--no-timeseries keeps it)"
        return ""

    def _too_much(self, person: Person, missing: np.ndarray) -> str:
        """Which regions are missing, where they are too many."""
        complete = self.options.missing == "drop-participant"
        if missing.mean() <= (0.0 if complete else MOST_MISSING):
            return ""
        advice = _ADVICE if missing.mean() <= MOST_MISSING else ""
        where = self.plan.people[person.participant][0].where
        return f"{where}: {describe_missing(missing, self.plan.recipe.regions.target.labels)}{advice}"

    def _read(self) -> Iterator[Person]:
        people = list(self.plan.people.values())
        stacked = any(scan.key is not None for scans in people for scan in scans)
        jobs = 1 if stacked else self.options.jobs  # one open file is read by one process
        results = in_order(partial(read_person, self.plan.recipe), people, len(people), jobs)
        return iter(tracked(results, "reading", len(people), unit="participants", shown=self.options.progress))
