"""Zip archives of text files: each file is one participant's matrix, time series or vector."""

from __future__ import annotations

from pathlib import Path

from nerve._utils.errors import NerveError
from nerve.data.readers.archives import read_member_numbers, text_members, zips_below
from nerve.data.readers.base import Options, ScanFile
from nerve.data.readers.modalities import refuse_several_measures
from nerve.data.readers.names import scans_of_files
from nerve.data.readers.opening import is_data
from nerve.data.readers.plain import Plain
from nerve.data.readers.regions import known_codes
from nerve.data.readers.text import Numbers


class Zipped(Plain):
    """Plain text files that lie in zip archives: paths go on into the archive."""

    describe = "zip archives of text files (csv, tsv, txt), one file per participant"
    uses = ("unfolding", "header", "index")
    fallback = True

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """One scan per text file in the archives."""
        paths = []
        for archive in zips_below(source):
            try:
                members = text_members(archive)
            except NerveError:  # no archive, or a damaged one: `describe_seen` lists it
                continue
            paths += [archive / member for member in members]
        paths = [path for path in paths if is_data(path)]
        refuse_several_measures(paths, source, options)
        return self.decide_content(scans_of_files(paths, source, options), options)

    def load(self, scan: ScanFile, options: Options) -> Numbers:
        """The numbers of one file in an archive."""
        archive = next(path for path in scan.path.parents if path.is_file())
        member = scan.path.relative_to(archive).as_posix()
        codes = known_codes(options.file_regions)
        return read_member_numbers(archive, member, options.header, options.index, codes)
