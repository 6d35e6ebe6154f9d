"""Every table and figure of the paper: what is run, and what is made of the results."""
