"""What every room needs: errors, checks, threads, the store, progress, signals, the environment."""
