"""Partitions by the executors of a Spark cluster (mapInArrow)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from wdistill.engines.failures import check_java, engine_errors
from wdistill.engines.partition import Work

ON_THIS_MACHINE = {  # settings of a Spark that is started here: the same Python, and no address that others can reach
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_LOCAL_IP": "127.0.0.1",
}


def run_on_spark(work: Work, questions: Sequence[str], master: str | None = None) -> Iterable[str]:
    """All answers, once all are there; the work is sent to every executor once."""
    check_spark()
    with engine_errors("spark"), _session(master) as session:
        sent = session.sparkContext.broadcast(work)

        def answers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield pa.record_batch({"answer": [sent.value(question) for question in batch["question"].to_pylist()]})

        rows = session.sparkContext.parallelize([(question,) for question in questions], len(questions))
        found = session.createDataFrame(rows, "question string").mapInArrow(answers, "answer string").collect()
        return [row.answer for row in found]


def check_spark() -> None:
    """Refuse, before anything is read, to start without Spark or a Java that it runs on."""
    with engine_errors("spark"):
        from pyspark.sql import SparkSession

        if SparkSession.getActiveSession() is None:
            check_java()


@contextmanager
def _session(master: str | None) -> Iterator[Any]:
    """The session that there is, or one of our own until the end."""
    from pyspark.sql import SparkSession

    existing = SparkSession.getActiveSession()
    if existing is not None:
        yield existing
        return
    builder = SparkSession.builder.appName("wdistill").config("spark.log.level", "ERROR")
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            os.environ.update({name: os.environ.get(name, value) for name, value in ON_THIS_MACHINE.items()})
            builder = builder.config("spark.ui.enabled", "false")
            builder = builder.config("spark.executorEnv.PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
