"""A store of objects (moto's S3, on loopback): inputs and outputs there, one manifest, and a store that stops answering."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scale.clusters import FILES, bytes_of, one_process, rows_in_files
from tests.tables import columns, write
from wdistill.core.errors import FileError
from wdistill.core.places import place_of
from wdistill.engines.local import run_here
from wdistill.engines.weigh import weigh_partitions
from wdistill.tables.manifest import MANIFEST
from wdistill.tables.options import Options, Paths

MORE = 24  # files of a job that is to take a while


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


@pytest.mark.parametrize("address", ["s3://none", "s3://none/m"])
def test_a_bucket_is_never_made(s3: Any, address: str) -> None:
    with pytest.raises(FileError, match="no such file"):
        place_of(address).put_bytes("x", b"")
    assert s3[0].ls("") == ["bucket"]


def test_a_store_that_stops_in_the_middle_of_a_job_ends_it_and_the_same_command_goes_on(s3: Any, tmp_path: Path) -> None:
    system, server = s3
    given = rows_in_files(tmp_path)
    for number in range(FILES, FILES + MORE):
        write(tmp_path / "u" / f"{number:02d}.parquet", columns(number, 40_000, first=10**7 * number))
    system.put(str(tmp_path / "u"), "bucket/stopped/u", recursive=True)
    flags = ["--validation", given.validation[0], "--unlabeled", "s3://bucket/stopped/u/*.parquet"]
    command = [sys.executable, "-m", "wdistill", "weigh", *flags, "--engine", "local", "--workers", "2", "--output"]
    here = {**os.environ, "AWS_MAX_ATTEMPTS": "1"}
    subprocess.run([*command, "s3://bucket/stopped/whole"], check=True, capture_output=True, env=here)

    def changed() -> dict[str, Any]:
        """When each part was written."""
        system.invalidate_cache()
        found = system.ls("bucket/stopped/o", detail=True) if system.exists("bucket/stopped/o") else []
        return {each["name"]: each["LastModified"] for each in found if "/part-" in each["name"]}

    with subprocess.Popen([*command, "s3://bucket/stopped/o"], stderr=subprocess.PIPE, text=True, env=here) as process:
        while not changed():
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.02)
        server.stop()
        _, said = process.communicate(timeout=240)
    assert process.returncode == 75 and "does not answer" in said and "Traceback" not in said
    again = type(server)(*server.get_host_and_port())
    again.start()
    try:
        before = changed()
        assert 0 < len(before) < FILES + MORE and not system.exists(f"bucket/stopped/o/{MANIFEST}")
        done = subprocess.run([*command, "s3://bucket/stopped/o"], capture_output=True, text=True, env=here)
        assert done.returncode == 0, done.stderr
        assert changed().items() >= before.items()  # what was done is kept
        for name in ("o", "whole"):
            system.get(f"bucket/stopped/{name}", str(tmp_path / name), recursive=True)
    finally:
        again.stop()
    assert bytes_of(tmp_path / "o") == bytes_of(tmp_path / "whole") and len(bytes_of(tmp_path / "o")) == FILES + MORE + 1


def test_a_file_system_of_pyarrow_is_a_store(tmp_path: Path) -> None:
    """By fsspec's wrapper, on which its hdfs:// is built, here over a folder of this machine."""
    import fsspec
    from fsspec.implementations.arrow import ArrowFSWrapper
    from pyarrow.fs import LocalFileSystem

    class Wrapped(ArrowFSWrapper):  # type: ignore[misc]
        protocol = "wrapped"

        def __init__(self, **settings: Any) -> None:
            super().__init__(LocalFileSystem(), **settings)

    fsspec.register_implementation("wrapped", Wrapped, clobber=True)
    given = rows_in_files(tmp_path)
    one_process(given, tmp_path)
    addresses = Paths([f"wrapped://{given.validation[0]}"], [f"wrapped://{given.unlabeled[0]}"])
    output = f"wrapped://{tmp_path}/o"
    for _ in range(2):  # the second time it is finished
        weigh_partitions(addresses, output, Options(), run_here)
        here, whole = bytes_of(tmp_path / "o"), bytes_of(tmp_path / "whole")
        parts = [sorted(content for name, content in each.items() if name != MANIFEST) for each in (here, whole)]
        assert len(here) == FILES + 1 and parts[0] == parts[1]
    place = place_of(f"wrapped://{tmp_path}/m")
    assert [place.put_if_absent("x", content) for content in (b"first", b"second")] == [True, False]
    assert place.read("x") == b"first" and place.read("y") is None
    with pytest.raises(FileError, match="no such file"):  # only the last folder of an address is made
        place_of(f"wrapped://{tmp_path}/n/m").put_bytes("x", b"")
    with pytest.raises(FileError, match="no such file"):
        weigh_partitions(Paths(addresses.validation, [f"wrapped://{tmp_path}/none/"]), output, Options(), run_here)
