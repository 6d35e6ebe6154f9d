"""How gold rows of answers were drawn: their groups and inclusion probabilities, by id."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from wdistill.answers.gold_labels import GoldLabels
from wdistill.core.errors import bad_input
from wdistill.methods.gold_design import GROUP, INCLUSION, GoldDesign, check_groups, inclusion_weights
from wdistill.tables.gold_design import naming_ids


@dataclass(frozen=True)
class Column:
    """A column, and where it stands."""

    where: str
    values: Mapping[str, Any]  # by id


@dataclass(frozen=True)
class DrawnGold:
    """The columns that say how gold rows were drawn; None where nobody said it."""

    groups: Column | None
    inclusion: Column | None

    def of(self, ids: Sequence[str]) -> GoldDesign:
        """The design of the rows with these ids, checked."""
        return GoldDesign(_read(self.inclusion, ids, inclusion_weights), _read(self.groups, ids, check_groups))


def find_drawn(gold: GoldLabels, group: str | None, inclusion: str | None, where: str) -> DrawnGold:
    """The columns of the gold labels that were named, or that have their usual names.

    Groups that were named may stand elsewhere; inclusion probabilities that were named and are not there are an error.
    """
    records = {**{row.id: row.record for row in gold.several}, **gold.records}

    def column(name: str) -> Column | None:
        if not any(name in record for record in records.values()):
            return None
        return Column(f"{where}, column {name!r}", {key: record.get(name) for key, record in records.items()})

    found = column(inclusion or INCLUSION)
    if inclusion is not None and found is None:
        there = f"columns {', '.join(dict.fromkeys(str(name) for record in records.values() for name in record))}"[:300]
        expected, remedy = f"a column {inclusion!r}", "name another column, or leave --inclusion out"
        raise bad_input(f"no column {inclusion!r}", where, there, expected, remedy)
    return DrawnGold(column(group or GROUP), found)


def _read(
    column: Column | None, ids: Sequence[str], check: Callable[[NDArray[Any], str], NDArray[Any]]
) -> NDArray[Any] | None:
    if column is None:
        return None
    values = np.empty(len(ids), object)
    values[:] = [column.values.get(key) for key in ids]
    with naming_ids(pa.array(ids, pa.string())):
        return check(values, column.where)
