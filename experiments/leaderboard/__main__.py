import sys

from experiments.leaderboard.run import main

sys.exit(main())
