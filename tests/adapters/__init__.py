"""Students in other people's trainers, which `make test-adapters` installs."""
