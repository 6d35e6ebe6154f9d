"""The confirmation of `best` and of its forecast, on tasks that were named before any was run."""
