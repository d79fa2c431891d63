"""MultiMedEval's datasets: one module per kind of source."""
