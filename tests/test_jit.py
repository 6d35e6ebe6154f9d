"""Compiled code: a damaged cache is made anew, and without a compiler plain NumPy gives the same bits."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from wdistill.weights._jit import CheckedCacheFile

ROOT = Path(__file__).parent.parent
WEIGH = """
import sys
import numpy as np
from wdistill import Evidence, debiased
from wdistill.weights import confidence, neighbors

confidence.SMALL = neighbors.SMALL = 0
random = np.random.default_rng(0)
arrays = [random.dirichlet(np.ones(3), rows).astype(np.float32) for rows in (50, 50, 900, 900)]
weights = debiased(Evidence(arrays[0].argmax(axis=1) * (random.random(50) < 0.7), *arrays))
print(weights.tobytes().hex(), "wdistill.weights._neighbors" in sys.modules)
"""
EXP = """
import numpy as np
from wdistill.weights._confidence import exp_of

out = np.empty(16)
exp_of(np.arange(8.0), out)
print(out[:8].tobytes().hex(), sum(exp_of.stats.cache_hits.values()))
"""


def answer(program, **environment):
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_without_a_compiler_the_bits_are_the_same():
    weights, compiled = answer(WEIGH)
    assert compiled == "True"
    assert answer(WEIGH, NUMBA_DISABLE_JIT="1") == [weights, "False"]


def damaged(content, how):
    if how == "empty":
        return b""
    if how == "cut":
        return content[: len(content) // 2]
    if how == "without a digest":  # as numba alone would write it
        return content[:-32]
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.slow
@pytest.mark.proof
def test_damaged_cache_is_made_anew(tmp_path):
    where = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    right, _ = answer(EXP, **where)
    assert answer(EXP, **where) == [right, "1"]
    for how in ("flipped", "cut"):
        for path in [path for path in (tmp_path / "cache").rglob("*") if path.suffix in (".nbi", ".nbc")]:
            path.write_bytes(damaged(path.read_bytes(), how))
        assert answer(EXP, **where) == [right, "0"]
        assert answer(EXP, **where) == [right, "1"]


@pytest.mark.slow
def test_cache_that_cannot_be_written_is_left_out(tmp_path):
    (tmp_path / "file").write_text("")
    assert answer(EXP, NUMBA_CACHE_DIR=str(tmp_path / "file" / "cache"))[1] in ("0", "1")
    cache = tmp_path / "cache"
    answer(EXP, NUMBA_CACHE_DIR=str(cache))
    for path in list(cache.rglob("*.nb?")):
        path.unlink()
        path.mkdir()
    assert answer(EXP, NUMBA_CACHE_DIR=str(cache))[1] == "0"


@pytest.mark.parametrize("how", ["empty", "cut", "flipped", "without a digest"])
def test_damaged_file_of_the_cache_counts_as_missing(tmp_path, how):
    cache = CheckedCacheFile(str(tmp_path), "kernel", "stamp")
    for which in (".nbi", ".nbc"):
        cache.save("key", {"code": b"\x90" * 50})
        assert cache.load("key") == {"code": b"\x90" * 50}
        (path,) = [path for path in tmp_path.iterdir() if path.suffix == which]
        path.write_bytes(damaged(path.read_bytes(), how))
        assert cache.load("key") is None


def test_every_flipped_bit_of_the_cache_is_seen(tmp_path):
    cache = CheckedCacheFile(str(tmp_path), "kernel", "stamp")
    cache.save("key", {"code": b"\x90" * 20})
    for path in list(tmp_path.iterdir()):
        content = path.read_bytes()
        for place in np.random.default_rng(1).choice(8 * len(content), 60):
            wrong = bytearray(content)
            wrong[place // 8] ^= 1 << (place % 8)
            path.write_bytes(wrong)
            assert cache.load("key") is None
        path.write_bytes(content)
    assert cache.load("key") == {"code": b"\x90" * 20}
