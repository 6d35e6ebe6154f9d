"""The folder of the output: whose its files are, and the order in which they come and go.

A file is ours if its name carries the key of a partition of this job; or if it is the whole record of an earlier version of
a partition of this job, or the file that such a record names, with the digest that it tells. Everything else is somebody
else's, and is never removed: it is refused where readers of the folder would take it for a part, and left where they do not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from wdistill.core import store
from wdistill.core.errors import ConfigError, bad_value
from wdistill.core.paths import is_passed_over
from wdistill.core.places import Place, is_remote, place_of
from wdistill.engines.partition import Made, Partition, is_whole, made_of
from wdistill.tables.manifest import PART, RECORD


def check_output_folder(output: str) -> None:
    """Refuse, before anything is read, what cannot become the folder of any job: a file, or a folder of others' files."""
    if not is_remote(output) and not Path(output).is_dir():
        if Path(output).exists():
            found, expected = "a file", "a folder, or a path where nothing is: with --engine the output is a folder"
            raise bad_value("the output is no folder", f"--output {output}", found, expected, "name a folder")
        return
    others = [name for name in place_of(output).names() if not (PART.fullmatch(name) or is_passed_over(name))]
    if others:
        raise _foreign(output, others)


@dataclass(frozen=True)
class OutputFolder:
    """The folder of a job."""

    place: Place
    where: str  # as it was named
    job: str  # the digest of all that was prepared
    partitions: Sequence[Partition]

    def refuse_others(self) -> None:
        """Refuse parts of another job, and what readers of the folder would take for a part of this one."""
        names = self.place.names()
        earlier = self._earlier(names)
        others = [name for name, made in earlier.items() if made.job != self.job]
        if others:
            found = f"{', '.join(others[:5])}: of other options, gold rows or inputs"
            remedy = "finish that job with the command that began it, or remove the folder, or name another one"
            raise bad_value(
                "another job for this output is not finished", self.where, found, "parts of the same job", remedy
            )
        files = self._files_of(earlier)
        foreign = [name for name in names if not (self._has_key(name) or name in files or is_passed_over(name))]
        if foreign:
            raise _foreign(self.where, foreign)

    def sweep(self, listed: Collection[str]) -> None:
        """Remove what killed processes left, and files of earlier versions of the input, each before its record."""
        self.place.sweep()
        names = self.place.names()
        earlier = {name: made for name, made in self._earlier(names).items() if made.job == self.job}
        files = [name for name in self._files_of(earlier) if name not in listed]
        left = [name for name in names if PART.fullmatch(name) and self._has_key(name) and name not in listed]
        foreign = [name for name in left if not self._is_what_its_name_says(name)]
        if foreign:
            raise _foreign(self.where, foreign)
        for name in [*files, *left, *earlier]:
            self.place.remove(name)

    def remove_records(self) -> None:
        """The manifest has taken their place."""
        for name in self.place.names():
            if RECORD.fullmatch(name) and self._has_key(name):
                self.place.remove(name)

    @cached_property
    def _stems(self) -> set[str]:
        return {partition.stem for partition in self.partitions}

    def _has_key(self, name: str) -> bool:
        """Whether a name is that of a record or file of a partition, which nobody else gives by chance."""
        match = RECORD.fullmatch(name) or PART.fullmatch(name)
        return match is not None and match[1] in self._stems

    def _earlier(self, names: Sequence[str]) -> dict[str, Made]:
        """The records, whole, of other partitions than those of this job, by name."""
        candidates = [name for name in names if RECORD.fullmatch(name) and not self._has_key(name)]
        records = {name: made_of(self.place.read(name)) for name in candidates}
        return {name: made for name, made in records.items() if made is not None and name == f"_{made.stem}.json"}

    def _files_of(self, records: dict[str, Made]) -> list[str]:
        """The files that records name and that are as they tell."""
        with tempfile.TemporaryDirectory(prefix="wdistill-") as scratch:
            return [
                made.file
                for made in records.values()
                if (match := PART.fullmatch(made.file))
                and match[1] == made.stem
                and is_whole(self.place, made, Path(scratch))
            ]

    def _is_what_its_name_says(self, name: str) -> bool:
        """Whether the digest of a part begins as its name tells."""
        match = PART.fullmatch(name)
        with tempfile.TemporaryDirectory(prefix="wdistill-") as scratch:
            return match is not None and store.digest_file(self.place.local(name, Path(scratch))).startswith(match[2])


def _foreign(where: str, names: Sequence[str]) -> ConfigError:
    found, expected = ", ".join(names[:5]), "an empty folder, or parts of the same job"
    remedy = "move it away, or name another folder"
    return bad_value("the output folder holds something else", where, found, expected, remedy)
