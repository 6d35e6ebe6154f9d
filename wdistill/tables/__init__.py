"""Files in, files out, no torch: tables of predictions, joined by id, weighed or corrected chunk by chunk."""
