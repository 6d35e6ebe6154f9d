"""Pilot students for tables: linear ones, which read the column of inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.methods.pilots import PilotPredictions, Pilots
from wdistill.methods.targets import Targets
from wdistill.tables.experts import ExpertTables, SampledPredictions
from wdistill.text.linear_pilots import announce_linear_pilots, drawn_rows, linear_pilots


def table_pilots(experts: ExpertTables, sample: SampledPredictions) -> Pilots | None:
    """A function that trains pilots on standardized inputs; None where there are no inputs. It says what they will take."""
    gold, inputs = experts.inputs, sample.inputs
    if gold is None or inputs is None:
        return None
    mean, scale = inputs.mean(axis=0), inputs.std(axis=0)

    def features(rows: NDArray[np.float32]) -> Any:
        from scipy.sparse import csr_array

        return csr_array((rows - mean) / np.where(scale > 0, scale, 1.0))

    announce_linear_pilots(len(gold), len(inputs), experts.classes, f"{inputs.shape[1]:,} inputs")

    def pilots(targets: Targets) -> PilotPredictions:
        drawn = drawn_rows(len(inputs), sample.context.seed)
        return linear_pilots(sample.context, targets, features(gold), drawn, features(inputs[drawn]))

    return pilots
