"""Blocks of rows on several threads: each is done once, and an error comes out."""

import pytest

from wdistill.core.threads import parallel


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_every_block_is_done_once(monkeypatch, threads):
    monkeypatch.setenv("WDISTILL_THREADS", threads)
    done = []
    parallel(lambda part: done.extend(range(part.start, part.stop)), 103, 10)
    assert sorted(done) == list(range(103))


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_an_error_in_a_block_is_raised_and_ends_the_work(monkeypatch, threads):
    monkeypatch.setenv("WDISTILL_THREADS", threads)
    begun = []

    def work(part):
        begun.append(part.start)
        raise ValueError(part.start)

    with pytest.raises(ValueError) as caught:
        parallel(work, 1000, 1)
    assert caught.value.args[0] == min(begun)
    assert len(begun) <= int(threads)
