"""`python -m tests.reliability`: see goals.py."""

import sys

from tests.reliability.goals import main

if __name__ == "__main__":
    sys.exit(main())
