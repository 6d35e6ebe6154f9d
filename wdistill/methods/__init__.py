"""Methods: targets, weights and loss of the student's second stage, from predictions and gold labels. Arrays only."""
