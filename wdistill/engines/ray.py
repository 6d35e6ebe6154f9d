"""Partitions by the actors of a Ray cluster (Ray Data)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from wdistill.engines.failures import engine_errors
from wdistill.engines.partition import Work


def run_on_ray(work: Work, questions: Sequence[str], address: str | None = None) -> Iterable[str]:
    """All answers, as they come; without an address, of a cluster that is started on this machine, and ended."""
    with engine_errors("ray"), _connection(address):
        import ray.data

        rows = ray.data.from_items([{"question": question} for question in questions], override_num_blocks=len(questions))
        answers = rows.map_batches(
            Answers, fn_constructor_args=(work,), batch_format="pyarrow", batch_size=1, concurrency=(1, len(questions))
        )
        for batch in answers.iter_batches(batch_size=1, batch_format="pyarrow"):
            yield from batch["answer"].to_pylist()


def check_ray() -> None:
    """Refuse, before anything is read, to start without Ray."""
    with engine_errors("ray"):
        import ray.data  # noqa: F401


class Answers:
    """The work, held by an actor."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self, batch: pa.Table) -> pa.Table:
        return pa.table({"answer": [self.work(question) for question in batch["question"].to_pylist()]})


@contextmanager
def _connection(address: str | None) -> Iterator[None]:
    """The connection that there is, or one of our own until the end."""
    import ray

    if ray.is_initialized():
        yield
        return
    ray.init(address=address, log_to_driver=False, include_dashboard=False if address is None else None)
    try:
        yield
    finally:
        ray.shutdown()
