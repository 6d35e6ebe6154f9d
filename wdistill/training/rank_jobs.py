"""Jobs on the ranks of a run: each trained by one process from beginning to end, or by all of them together."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from wdistill.core import checks
from wdistill.core.errors import in_words
from wdistill.training.jobs import TrainingJob, run_job
from wdistill.training.packing import packed, unpacked
from wdistill.training.predict import device_for
from wdistill.training.ranks import Ranks, apart
from wdistill.training.stage import Callbacks, told


def run_on_ranks(jobs: Sequence[TrainingJob], callbacks: Callbacks, team: Ranks, together: bool) -> None:
    """The leader: arms one after the other, each by all processes, where `together`, and models in shards; all else side
    by side.
    """
    arms = together and all(job.rule is not None for job in jobs)
    apart_from_others = [packed(job, job.name) for job in jobs if not (arms or job.sharded)]
    if apart_from_others:
        team.tell("jobs", apart_from_others)
        train_share(apart_from_others, callbacks, team)
    for job in jobs:
        if arms or job.sharded:
            run_job(job, callbacks)


def train_share(jobs: Sequence[bytes], callbacks: Callbacks, team: Ranks) -> None:
    """Train those jobs that are this process'; the first error of all of them ends all, where it is the leader."""
    failed: Exception | None = None
    with apart(), _collected(team) as messages:
        try:
            for job in map(unpacked, jobs[team.rank :: team.size]):
                run_job(replace(job, device=str(device_for(job.recipe.device))), callbacks)
        except Exception as error:
            failed = error
    said = team.agree((failed and in_words(failed), messages))
    if team.rank:
        return
    for text in dict.fromkeys(text for _, others in said[1:] for text in others):
        checks.warn(text)
    if failed is not None:
        raise failed
    for words, _ in said[1:]:
        if words:
            raise told(words)


@contextmanager
def _collected(team: Ranks) -> Iterator[list[str]]:
    """On a follower: warnings as texts, for the leader to show; on the leader, which shows its own, none."""
    if not team.rank:
        yield []
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        messages: list[str] = []
        yield messages
        messages += [str(each.message) for each in caught]
