"""Methods: what the student is taught in the second stage, from what is known before it. Arrays only."""
