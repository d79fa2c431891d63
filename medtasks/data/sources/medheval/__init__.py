"""MedHEval: its published files and the images they name."""
