"""Runs, without torch: recipe, arms, folder, checkpoints and results."""
