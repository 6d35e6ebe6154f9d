"""Table jobs on many files and many processes: the same rows, on one machine, Ray or Spark."""
