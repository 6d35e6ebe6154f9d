"""Paired trials on a file of an LLM's answers whose truth is known: what each way to use them is worth to a student."""
