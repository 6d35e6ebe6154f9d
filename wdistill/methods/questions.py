"""What a user may ask beside the verdict: gold rows for an interval of so many points, and costs."""

from __future__ import annotations

from dataclasses import dataclass

from wdistill.core.errors import bad_value
from wdistill.methods.costs import Prices

WITHIN = 2.0  # points, unless another width is asked for


@dataclass(frozen=True)
class Questions:
    """Asked before anything is computed; what makes no sense is an error."""

    within: float = WITHIN  # points on either side of the teacher's metric
    prices: Prices | None = None
    serve: int | None = None  # rows

    def __post_init__(self) -> None:
        if not isinstance(self.within, int | float) or isinstance(self.within, bool) or not 0 < self.within <= 100:
            expected, remedy = "points above 0, at most 100", "write 2 for ± 2 points"
            raise bad_value("not a width", "within (--within)", repr(self.within), expected, remedy)
        if self.serve is not None and (type(self.serve) is not int or self.serve < 1):
            expected, remedy = "a whole number of at least 1", "write how many rows will be served"
            raise bad_value("not a number of rows", "serve (--serve)", repr(self.serve), expected, remedy)
        if self.prices is not None and not isinstance(self.prices, Prices):
            expected, remedy = "wdistill.Prices", "write Prices(gold=0.5, teacher=0.01)"
            raise bad_value("not prices", "prices", repr(self.prices), expected, remedy)
        if (self.prices is None) != (self.serve is None):
            found = "prices, and no rows to serve" if self.serve is None else f"{self.serve:,} rows to serve, and no prices"
            remedy = "add --serve N (serve=)" if self.serve is None else "add --price-gold and --price-teacher (prices=)"
            raise bad_value("costs need prices and rows to serve", "prices, serve", found, "both, or neither", remedy)


USUAL = Questions()
