"""What runs came to, for people: one page that needs nothing else, and one table for the terminal."""

from wdistill.pages.accuracies import Difference, Row, Score, headline
from wdistill.pages.assembly import page
from wdistill.pages.tables import terminal_table

__all__ = ["Difference", "Row", "Score", "headline", "page", "terminal_table"]
