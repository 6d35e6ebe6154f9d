"""The flags of commands that work on many files by an engine: --engine, and how many workers or which cluster."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

ENGINES = ("local", "ray", "spark")
OF_ENGINE = {"workers": "local", "address": "ray", "master": "spark"}  # flags that one engine alone looks at


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    flag = parser.add_argument
    flag("--engine", choices=ENGINES, help="file by file into a folder, by processes of this machine, Ray or Spark")
    flag("--workers", type=int, metavar="N", help="with --engine local: processes (default 1)")
    flag("--address", metavar="A", help="with --engine ray: the cluster; without, one is started on this machine")
    flag(
        "--master",
        metavar="M",
        help="with --engine spark: the cluster, such as local[4]; without, that of the configuration",
    )


def engine_of(arguments: argparse.Namespace) -> Any:
    """The engine that the flags name; None where they name none."""
    from wdistill.core.errors import bad_value

    for name, engine in OF_ENGINE.items():
        if getattr(arguments, name) is not None and arguments.engine != engine:
            found = f"--engine {arguments.engine}" if arguments.engine else "no --engine"
            remedy = f"add --engine {engine}, or leave --{name} out"
            raise bad_value(f"--{name} needs --engine {engine}", "--engine", found, f"--engine {engine}", remedy)
    if arguments.workers is not None and arguments.workers < 1:
        raise bad_value("no such number of workers", "--workers", arguments.workers, "1 or more", "leave it out for 1")
    if arguments.engine == "local":
        from wdistill.engines.local import run_here

        return partial(run_here, workers=arguments.workers or 1)
    if arguments.engine == "ray":
        from wdistill.engines.ray import check_ray, run_on_ray

        check_ray()
        return partial(run_on_ray, address=arguments.address)
    if arguments.engine == "spark":
        from wdistill.engines.spark import check_spark, run_on_spark

        check_spark()
        return partial(run_on_spark, master=arguments.master)
    return None
