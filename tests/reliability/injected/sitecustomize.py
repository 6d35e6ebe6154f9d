"""Run by every Python that starts with this folder on its path: a worker process gets the fault that its job shall meet."""

import os
import sys

if "FAULT_OF_WORKERS" in os.environ and any("spawn_main" in word for word in sys.orig_argv):
    from tests.reliability.hooks import install_in_worker

    install_in_worker()
