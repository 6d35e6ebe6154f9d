"""What the followers of a run do: the leader's orders, one after the other, until the run ends.

begin    a run begins: threads
jobs     every process trains some of these jobs by itself, from beginning to end
train    a copy of a training that all step through together; epoch, step and leave follow (parted.py)
shard    hold shards of a model until release; train-shards, and shards: what to do with them (sharded.py)
predict  a share of the rows of a prediction (predict.py)
end      the run is over, with this result
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import nn

from wdistill.core.errors import ConfigError, UnfinishedError, WdistillError, from_words, in_words
from wdistill.core.signals import stopping
from wdistill.training.jobs import torch_threads
from wdistill.training.packing import packed, unpacked
from wdistill.training.parted import Follower
from wdistill.training.predict import device_for, predict_share
from wdistill.training.rank_jobs import train_share
from wdistill.training.ranks import Ranks, ranks
from wdistill.training.stage import Callbacks

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def led(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """On the leader, or without others, the function itself; on a follower its orders, and then the leader's result."""

    @wraps(function)
    def run(*arguments: Arguments.args, **more: Arguments.kwargs) -> Result:
        team = ranks()
        if team.rank:
            result: Result = follow()
            return result
        if team.size == 1:
            return function(*arguments, **more)
        try:
            result = function(*arguments, **more)
        except BaseException as error:
            with suppress(UnfinishedError):
                team.tell("end", in_words(error) if isinstance(error, Exception) else {"kind": "", "what": "stopped"})
            raise
        with suppress(ConfigError):  # what cannot be sent is the leader's alone
            team.tell("end", None, packed(result, "result"))
            return result
        team.tell("end", None, packed(None, "result"))
        return result

    return run


def follow() -> Any:
    """Do what the leader says until it ends the run; its result, or the error that ended it."""
    team, held, in_shards = ranks(), list[Follower](), list[nn.Module]()
    with ExitStack() as resources:
        stop = resources.enter_context(stopping())
        resources.enter_context(torch.random.fork_rng(devices=[]))
        while True:
            order, *values = team.hear()
            if order == "begin":
                resources.enter_context(torch_threads(*values))
            elif order == "jobs":
                train_share(values[0], Callbacks(stop), team)
            elif order == "predict":
                predict_share(values[0], team, stop, next(iter(in_shards), None))
            elif order in ("train", "train-shards"):
                while held:
                    held.pop().close()
                failed = None
                try:
                    held.append(_follower(order, values, team, in_shards))
                except Exception as error:
                    failed = in_words(error)
                team.agree(failed)
            elif order == "shard":
                from wdistill.training.sharded import shards_of

                with suppress(WdistillError):  # the leader knows
                    in_shards[:] = [shards_of(values[0], values[1], team)]
            elif order == "release":
                in_shards.clear()
                while held:
                    held.pop().close()
            elif order == "shards":
                held[-1].keep(*values)
            elif order == "epoch":
                with suppress(Exception):  # the leader knows
                    held[-1].follow(values[0], values[1], stop)
            elif order == "end":
                return _ended(*values)


def _follower(order: str, values: Sequence[Any], team: Ranks, in_shards: Sequence[nn.Module]) -> Follower:
    if order == "train":
        return Follower(values[0], device_for(values[1]), team)
    from wdistill.training.sharded import ShardedFollower

    return ShardedFollower(values[0], in_shards[0], team)


def _ended(error: Mapping[str, str] | None, result: bytes = b"") -> Any:
    if error is not None:
        raise from_words(error)
    return unpacked(result)
