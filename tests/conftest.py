"""Hypothesis: the same examples every time, few in `make quick`, many at night (HYPOTHESIS_PROFILE). One thread each."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side: threads would only wait for each other, spinning

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # `make test &` of a script: the programs under test would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

quiet = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("ci", max_examples=100, derandomize=True, database=None, **quiet)
settings.register_profile("quick", max_examples=20, derandomize=True, database=None, **quiet)
settings.register_profile("nightly", max_examples=2000, **quiet)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever asks for a browser is marked as such, and is not among the tests of `make quick`."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The tests of adapters need other people's trainers, those of scale start several processes: they run where named."""
    folder = collection_path.name
    named = any(folder in argument for argument in config.invocation_params.args)
    return True if folder in ("adapters", "scale") and not named else None
