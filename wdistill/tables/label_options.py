"""What a user of `label` may choose, and the checks that come before a teacher is loaded or a table is opened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wdistill.core.errors import bad_value
from wdistill.core.settings import Settings, setting
from wdistill.tables.options import Paths, check_output

EXTENSIONS = (".parquet", ".pq")


@dataclass(frozen=True)
class LabelOptions(Settings):
    """The options of `label`; its flags are these fields."""

    inputs: tuple[str, ...] = setting(
        ("inputs",),
        "columns that the teacher reads, of numbers, lists of numbers or texts",
        least=1,
        metavar="COLUMN[,COLUMN…]",
    )
    id: str = setting("id", "column of ids", metavar="COLUMN")
    column: str = setting("teacher", "column that the predictions get", metavar="COLUMN")
    kind: Literal["probabilities", "logits"] = setting(
        "probabilities", "what the teacher returns; probabilities are stored in any case"
    )
    precision: Literal["float16", "float32"] = setting("float32", "of the stored probabilities")
    top_k: int | None = setting(
        None, "store only the K largest probabilities of a row, and the sum of all others (default: all classes)", least=2
    )
    batch_rows: int = setting(128, "rows that the teacher is called on", least=1)
    size: int | None = setting(
        None, "of a folder of pictures: the middle square of N × N that the teacher gets (default: 224)", least=1
    )


def check_label_output(output: Path, unlabeled: str) -> None:
    """Refuse an output that could not be written, before anything is loaded."""
    check_output(output, EXTENSIONS, Paths((), (unlabeled,)))


def check_label_options(options: LabelOptions) -> None:
    """Refuse options that make no sense."""
    if options.column in ("id", ""):
        remedy = "name the column of predictions, such as teacher"
        raise bad_value("not a name for predictions", "--column", repr(options.column), "a name other than id", remedy)
