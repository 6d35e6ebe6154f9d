"""All tests here run without a network: they fail, and are not skipped, where there is one."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

os.environ |= {
    "PYTHONPATH": str(Path(__file__).parent.parent.parent),  # workers import the tests' own work
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",  # nobody else is in this network; a token would be kept in the user's home
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(autouse=True, scope="session")
def without_network() -> None:
    interfaces = [name for _, name in socket.if_nameindex()]
    assert interfaces == ["lo"], f"run `make test-scale`: these tests need a network namespace, here are {interfaces}"
