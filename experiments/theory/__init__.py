"""The paper's claims as experiments that can fail (§2.2, §4, Appendices D and E)."""
