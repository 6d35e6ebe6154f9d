"""Text: hashed n-grams, features fitted to texts, linear models on them, rows of whole numbers for a student."""
