"""On top of scores: reports, comparisons, baselines, calibration, duplicates, and what a run was made with."""
