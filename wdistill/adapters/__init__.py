"""Other people's trainers: targets and weights, joined by id, in the form that each of them takes."""
