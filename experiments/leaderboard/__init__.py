"""The leaderboard of methods: its tasks, a trial, its statistics and its report."""
