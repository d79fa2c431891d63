"""Building benchmarks from a user's own images and reports: pairs, drafting, review, publishing."""
