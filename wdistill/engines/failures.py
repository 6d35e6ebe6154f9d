"""Errors of engines: what they need and this machine lacks, and what goes wrong in them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wdistill.core.errors import ConfigError, UnfinishedError, WdistillError

JAVA = 17  # the oldest version that Spark runs on


@contextmanager
def engine_errors(engine: str) -> Iterator[None]:
    """Whatever goes wrong in an engine becomes an error of ours; what is done is kept, so that it can be run again."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            "the engine is not installed",
            where=f"--engine {engine}",
            found=str(error),
            expected=f"the package of {engine}, here and on all machines of the cluster",
            remedy=f"pip install 'wdistill[{engine}]'",
        ) from None
    except (WdistillError, OSError):
        raise
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise UnfinishedError(
            "the engine failed",
            where=f"--engine {engine}",
            found=f"{type(error).__name__}: {' … '.join(dict.fromkeys([*lines[:2], *lines[-2:]]))}"[:1000],
            expected="an engine that runs to its end",
            remedy="run again: what is done is kept; for the whole message set WDISTILL_DEBUG=1",
        ) from error


def check_java() -> None:
    """Refuse to start Spark without a Java that it runs on."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    try:
        said = subprocess.run([program or "java", "-version"], capture_output=True, text=True, timeout=60).stderr
    except OSError:
        said = "no java"
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < JAVA:
        raise ConfigError(
            "Spark needs Java",
            where="--engine spark",
            found=said.splitlines()[0] if said else "no answer",
            expected=f"Java {JAVA} or newer",
            remedy=f"install it (Debian: apt-get install openjdk-{JAVA}-jre-headless), or set JAVA_HOME",
        )
