"""What wdistill needs of other packages beyond their documented interfaces, and the versions that were tested."""

from __future__ import annotations

import re
import tomllib
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numba
from numba.core.registry import cpu_target

ROOT = Path(__file__).parent.parent


def test_numba_still_has_the_private_option_that_the_kernels_use() -> None:
    """`_nrt=False` turns reference counting off in kernels that allocate nothing. Read, for the import may fail."""
    kernels = (ROOT / "wdistill" / "weights").glob("_*.py")
    private = {name for path in kernels for name in re.findall(r'"(_[a-z]+)":', path.read_text())}
    assert private == {"_nrt"}
    assert hasattr(cpu_target.options, "_nrt"), (
        f"numba {numba.__version__} has no option `_nrt`, which wdistill/weights/_neighbors.py passes to njit: "
        "remove it there, measure `python -m benchmarks.weigh --only 3`, and raise the bound on numba in pyproject.toml"
    )


def test_a_pool_of_processes_still_has_the_private_switch_that_ours_turns_off() -> None:
    """Without it, a worker that starts just as another dies crashes the thread that watches them (CPython 3.11 to 3.13)."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert getattr(pool, "_safe_to_dynamically_spawn_children", None) is True, "see wdistill/core/processes.py"


def test_numba_has_an_upper_bound_and_the_tested_version_is_below_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (wanted,) = [each for each in project["dependencies"] if each.startswith("numba")]
    bound = re.search(r"<(\d+)\.(\d+)", wanted)
    assert bound, wanted
    assert tuple(map(int, numba.__version__.split(".")[:2])) < (int(bound[1]), int(bound[2]))


def test_constraints_are_exact_versions_and_name_no_host() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert lines and all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", line) for line in lines)


TRAINERS = (
    *("sklearn", "lightgbm", "xgboost", "transformers", "lightning", "keras"),
    *("skorch", "cleanlab", "snorkel", "onnx", "skops", "adapters"),
)


def bounds(wanted: str) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """Name, lowest version, and the first that is too high."""
    match = re.fullmatch(r"([\w-]+)>=([\d.]+),<([\d.]+)", wanted)
    assert match, f"{wanted}: not bounded on both sides"
    return match[1], *(tuple(map(int, each.split("."))) for each in (match[2], match[3]))  # type: ignore[return-value]


def test_trainers_are_bounded_to_the_versions_that_are_tested() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = [line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    tested = {name: tuple(map(int, re.findall(r"\d+", version))) for name, version in lines}
    for extra in TRAINERS:
        for name, low, high in (bounds(each) for each in extras[extra] if not each.startswith("wdistill[")):
            version = tested["xgboost-cpu" if name == "xgboost" else name]
            assert low == version[: len(low)] < high, f"{extra}: {name} {version}"
    for each in (*extras["torch"], *extras["methods"]):
        name, low, high = bounds(each)
        assert low <= tested[name] < high, each
