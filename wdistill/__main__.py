import sys

from wdistill.cli import main

sys.exit(main())
