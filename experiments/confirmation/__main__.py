"""python -m experiments.confirmation"""

import sys

from experiments.confirmation.run import main

sys.exit(main())
