"""Training on weighted examples: losses, schedules, augmentation and the reference networks; everything here needs torch."""
