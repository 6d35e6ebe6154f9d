"""The networks: small ones for tables and images, and those of the paper."""
