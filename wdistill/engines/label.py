"""`wdistill label --engine`: rows in many files, or a folder of pictures, to a folder of predictions, by any engine.

Batches are counted from the first row of every file, or of every 4,096 pictures, and the teacher is called by one thread
of a processor: so the bits of a prediction depend neither on the engine nor on the number of its workers. The teacher is
loaded by its name, once in every process, and has to be the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import wdistill
from wdistill.core import checks, store
from wdistill.core.errors import WdistillWarning, bad_value
from wdistill.core.named import importable
from wdistill.core.places import fetch_tree, is_remote
from wdistill.core.settings import to_json
from wdistill.core.threads import one_thread
from wdistill.datasets.image_folder import ImageFolder
from wdistill.engines.folder import check_output_folder
from wdistill.engines.inputs import partition_files, picture_groups, version_of_pictures
from wdistill.engines.partition import Made, NewFile, Partition, local_files, naming, no_ids, refuse_changed
from wdistill.engines.run import Engine, Files, run_partitions
from wdistill.tables.formats.parquet import parquet_file
from wdistill.tables.job import make_part
from wdistill.tables.label import InputSource, LabelJob, classes_of, label_record
from wdistill.tables.label_inputs import TableInputs
from wdistill.tables.label_options import LabelOptions
from wdistill.tables.labeler import Labeler, Teacher
from wdistill.tables.parts import JobFolder
from wdistill.training.named_teacher import load_teacher

OPTION = "--unlabeled"


def label_partitions(
    teacher: str, unlabeled: str, pictures: bool, output: str, options: LabelOptions, engine: Engine
) -> dict[str, Any]:
    """Run the whole job; returns the record in the manifest."""
    check_output_folder(output)
    files = picture_groups(unlabeled) if pictures else partition_files([unlabeled], OPTION)
    here = str(Path.cwd())
    with checks.collect_warnings(WdistillWarning) as messages:
        with importable(here):
            digest = load_teacher(teacher).digest
        maker = LabelFile(teacher, digest, here, options, unlabeled if pictures else None)
        return run_partitions(LabelPartitions(maker, files), output, engine, messages)


@dataclass(frozen=True, eq=False)
class LabelPartitions:
    """The job that stores a teacher's predictions."""

    maker: LabelFile
    files: Files
    doing = "labeling"

    @property
    def state(self) -> str:
        """Of the teacher and the options."""
        told = [wdistill.__version__, self.maker.teacher, self.maker.digest, to_json(self.maker.options)]
        return store.digest(repr(told).encode())

    def expected_rows(self, made: Sequence[Made]) -> int:
        return sum(each.seen for each in made)

    def record(self, made: Sequence[Made], messages: list[str]) -> dict[str, Any]:
        """The same as for a file, after the same check."""
        for text in dict.fromkeys(text for each in made for text in each.notes["warnings"]):
            checks.warn(text)
        teacher = {"name": self.maker.teacher, "sha256": self.maker.digest}
        classes, rows = max(each.notes["classes"] for each in made), sum(each.rows for each in made)
        return label_record(teacher, self.maker.options, classes, len(made), rows, list(messages))


@dataclass(frozen=True)
class LabelFile:
    """Makes the predictions of a partition."""

    teacher: str
    digest: str  # of the teacher, where the job was started
    folder: str  # from which the teacher's module is found
    options: LabelOptions
    pictures: str | None  # the folder, where the partition is a group of its pictures
    option = OPTION

    def __call__(self, partition: Partition, scratch: Path) -> NewFile:
        with (
            importable(self.folder),
            self._source(partition, scratch) as source,
            checks.collect_warnings(WdistillWarning) as messages,
        ):
            job = LabelJob(source, Labeler(self._loaded, self.options))
            with one_thread():
                part = make_part(job, JobFolder(scratch, {}, "0"))
        if part is None:
            return NewFile(None, 0, {"classes": 0, "warnings": messages})
        path = scratch / part.file
        with path.open("rb") as file:
            classes = classes_of(parquet_file(file).schema_arrow)
        return NewFile(path, part.seen, {"classes": classes, "warnings": messages})

    @contextmanager
    def _source(self, partition: Partition, scratch: Path) -> Iterator[InputSource]:
        """The rows, as files of this machine."""
        if self.pictures is None:
            with local_files(partition, scratch, OPTION) as files:
                source = TableInputs.of(files[0], self.options)
                if source.table.counts_rows:
                    raise no_ids(source.where)
                yield source
            return
        assert self.options.size is not None
        if is_remote(self.pictures):
            fetch_tree(self.pictures, partition.files, scratch / "pictures")
            with naming({str(scratch / "pictures"): self.pictures}):
                yield ImageFolder(scratch / "pictures", partition.files, self.options.size)
        else:
            yield ImageFolder(Path(self.pictures), partition.files, self.options.size)
            refuse_changed(partition, version_of_pictures(self.pictures, partition.files))

    @cached_property
    def _loaded(self) -> Teacher:
        """The teacher, which is the same as where the job was started."""
        teacher = load_teacher(self.teacher)
        if teacher.digest != self.digest:
            found = f"SHA-256 {teacher.digest or 'unknown'} of its parameters or its code"
            remedy = (
                "every process loads it by itself: where its parameters are drawn at random, load them from a file or call "
                "torch.manual_seed first; bring the same files to all machines of the engine"
            )
            expected = f"{self.digest or 'unknown'}, as where the job was started"
            raise bad_value("the teacher is another one in a process of the engine", self.teacher, found, expected, remedy)
        return teacher

    def __reduce__(self) -> tuple[type[LabelFile], tuple[Any, ...]]:
        return LabelFile, (self.teacher, self.digest, self.folder, self.options, self.pictures)
