"""Scores, reports, comparisons, baselines, calibration, duplicates, and records of runs."""
