"""A store of objects (moto's S3, on loopback): inputs and outputs there, one manifest, and a store that stops answering."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scale.clusters import FILES, bytes_of, one_process, rows_in_files
from wdistill.core.places import place_of
from wdistill.tables.manifest import MANIFEST


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    settings = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    for name, value in {**settings, "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    import fsspec
    from s3fs import S3FileSystem

    S3FileSystem.clear_instance_cache()
    system = fsspec.filesystem("s3")
    system.makedirs("bucket", exist_ok=True)
    yield system, server
    server.stop()
    S3FileSystem.clear_instance_cache()


def test_the_command_reads_and_writes_objects(s3: Any, tmp_path: Path) -> None:
    system, server = s3
    given = rows_in_files(tmp_path)
    one_process(given, tmp_path)
    system.put(str(tmp_path / "u"), "bucket/u", recursive=True)
    system.put_file(str(tmp_path / "gold.parquet"), "bucket/gold.parquet")
    flags = [
        "--validation",
        "s3://bucket/gold.parquet",
        "--unlabeled",
        "s3://bucket/u/*.parquet",
        "--output",
        "s3://bucket/o",
    ]
    command = [sys.executable, "-m", "wdistill", "weigh", *flags, "--engine", "local", "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    system.invalidate_cache()
    system.get("bucket/o", str(tmp_path / "o"), recursive=True)
    here, whole = bytes_of(tmp_path / "o"), bytes_of(tmp_path / "whole")
    assert len(here) == FILES + 1 and MANIFEST in here
    parts = [sorted(content for name, content in each.items() if name != MANIFEST) for each in (here, whole)]
    assert parts[0] == parts[1]
    again = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert again.returncode == 0 and "nothing was left to do" in again.stderr
    server.stop()
    down = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "AWS_MAX_ATTEMPTS": "1"})
    assert down.returncode == 75 and "does not answer" in down.stderr and "Traceback" not in down.stderr


def test_of_two_writers_of_an_object_one_is_first(s3: Any) -> None:
    place = place_of("s3://bucket/m")
    assert [place.put_if_absent("x", content) for content in (b"first", b"second")] == [True, False]
    assert place.read("x") == b"first" and place.names() == ["x"]
