"""What the tests of engines share: rows in many files, the same by one process, and workers that die."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.answer_forms import gold_csv, label_and_confidence, make, part
from tests.tables import columns, write
from wdistill.answers.request import AnswerOptions, Sources
from wdistill.answers.targets import correct_files
from wdistill.engines.correct import correct_partitions
from wdistill.engines.label import label_partitions
from wdistill.engines.local import run_here
from wdistill.engines.run import Engine
from wdistill.engines.weigh import weigh_partitions
from wdistill.tables.label import label_files
from wdistill.tables.label_inputs import TableInputs
from wdistill.tables.label_options import LabelOptions
from wdistill.tables.labeler import Labeler
from wdistill.tables.options import Options, Paths
from wdistill.tables.weigh import weigh_files
from wdistill.training.named_teacher import load_teacher

FILES, ROWS = 6, 2_000

ByEngine = Callable[[Path, Engine], object]  # runs a job into a folder


def rows_in_files(folder: Path) -> Paths:
    """Gold rows, and unlabeled rows in several files."""
    write(folder / "gold.parquet", columns(0, 200, first=10**6))
    for number in range(FILES):
        table = columns(number + 1, ROWS, first=number * ROWS)
        write(folder / "u" / f"{number}.parquet", {name: table[name] for name in ("id", "teacher", "student")})
    return Paths([str(folder / "gold.parquet")], [str(folder / "u")])


def one_process(given: Paths, folder: Path) -> str:
    """The digest of the rows that one process makes, as a file and as a folder."""
    weigh_files(given, folder / "w.parquet", Options())
    weigh_partitions(given, str(folder / "whole"), Options(), run_here)
    assert digest_of_rows(folder / "whole") == digest_of_rows(folder / "w.parquet")
    return digest_of_rows(folder / "w.parquet")


def weighed(folder: Path) -> ByEngine:
    """Weights, written by one process into w.parquet."""
    given = rows_in_files(folder)
    weigh_files(given, folder / "w.parquet", Options())
    return lambda output, engine: weigh_partitions(given, str(output), Options(), engine)


def corrected(folder: Path) -> ByEngine:
    """The same for targets from answers with their texts."""
    rows, options = make(FILES * 60), AnswerOptions(text="text")
    (folder / "answers").mkdir()
    for number in range(FILES):
        written = label_and_confidence(part(rows, number * 60, (number + 1) * 60), folder)
        written.rename(folder / "answers" / f"{number}.jsonl")
    given = Sources([str(folder / "answers")], str(gold_csv(part(rows, 50, 130), folder)), None)
    correct_files(given, folder / "w.parquet", options)
    return lambda output, engine: correct_partitions(given, str(output), options, engine)


def labeled(folder: Path) -> ByEngine:
    """The same for the predictions of a teacher."""
    rows_in_files(folder)
    teacher, options = f"{__name__}:squared", LabelOptions(inputs=("student",))
    source = TableInputs.of(str(folder / "u"), options)
    label_files(source, Labeler(load_teacher(teacher), options), folder / "w.parquet")
    return lambda output, engine: label_partitions(teacher, str(folder / "u"), False, str(output), options, engine)


def squared(inputs: np.ndarray) -> np.ndarray:
    """A teacher."""
    return np.asarray(inputs**2 / (inputs**2).sum(axis=1, keepdims=True))


JOBS = {each.__name__: each for each in (weighed, corrected, labeled)}


def page_blocks(library: str = "") -> str:
    """The program of docs/scale.md: its first block, then that which imports a library, or all that import no engine."""
    page = (Path(__file__).parent.parent.parent / "docs" / "scale.md").read_text()
    first, *others = re.findall(r"```python\n(.*?)```", page, re.S)
    engines = {name: [block for block in others if f" {name}." in block] for name in ("ray", "pyspark")}
    assert [len(each) for each in engines.values()] == [1, 1] and len(others) == 5
    chosen = engines[library] if library else [block for block in others if [block] not in engines.values()]
    return "\n".join([first, *chosen])


def digest_of_rows(path: Path) -> str:
    """SHA-256 of all rows, sorted by id."""
    table = pq.read_table(path).replace_schema_metadata(None).sort_by("id").combine_chunks()
    content = hashlib.sha256(str(table.schema).encode())
    for column in table.columns:
        plain = pa.types.is_primitive(column.type)
        content.update(column.to_numpy().tobytes() if plain else repr(column.to_pylist()).encode())
    return content.hexdigest()


def bytes_of(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.iterdir()}


@dataclass(frozen=True)
class Dying:
    """Work whose process is killed in the middle of one partition, the first time it comes to it."""

    work: Any
    mark: str  # a file that says that it has happened
    victim: Callable[[], int] = os.getpid

    def __call__(self, question: str) -> str:
        if '"number": 3,' in question:
            try:
                os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                self.work(question)  # its file is there, its answer is lost
                os.kill(self.victim(), signal.SIGKILL)
        return str(self.work(question))


@dataclass(frozen=True)
class Together:
    """Work that begins once two processes are at it, or fails; each leaves its number in a folder."""

    work: Any
    seen: str

    def __call__(self, question: str) -> str:
        folder, end = Path(self.seen), time.monotonic() + 90
        folder.mkdir(exist_ok=True)
        (folder / str(os.getpid())).touch()
        while len(list(folder.iterdir())) < 2:
            if time.monotonic() > end:
                raise TimeoutError("one process is at it alone")
            time.sleep(0.02)
        return str(self.work(question))

    def processes(self) -> int:
        """How many have worked."""
        return len(list(Path(self.seen).iterdir()))
