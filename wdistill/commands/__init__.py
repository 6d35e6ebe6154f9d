"""The commands of `wdistill`, each with its flags and what it does."""
