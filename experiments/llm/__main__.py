import sys

from experiments.llm.run import main

sys.exit(main())
