"""Partitions by processes of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool

from wdistill.core.errors import worker_died
from wdistill.core.processes import process_pool
from wdistill.core.signals import die_with_parent
from wdistill.engines.partition import Work


def run_here(work: Work, questions: Sequence[str], workers: int = 1) -> Iterable[str]:
    """All answers; with one worker they come from this process."""
    if workers == 1:
        yield from map(work, questions)
        return
    try:
        with process_pool(workers, _begin, work) as pool:
            for answer in as_completed([pool.submit(_answer, question) for question in questions]):
                yield answer.result()
    except BrokenProcessPool:
        raise worker_died("--engine local") from None


_held: list[Work] = []  # in a worker process: the work, which it gets once


def _begin(work: Work) -> None:
    die_with_parent()
    _held.append(work)


def _answer(question: str) -> str:
    return _held[0](question)
