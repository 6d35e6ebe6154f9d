"""The module path of `python -m wdistill`: without the current folder, which Python puts first, unless wdistill is in it.

Imported before anything else: a file struct.py in the current folder would be taken for Python's own.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 (see above)


def leave_current_folder() -> None:
    """Drop the current folder from the module path while `python -m` looks for the module to run: sys.argv[0] tells."""
    if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and sys.path:
        first = os.path.realpath(sys.path[0])
        if first == os.path.realpath(".") and first != os.path.realpath(ROOT):
            del sys.path[0]


leave_current_folder()
