"""The sets that MedEvalKit's protocol evaluates, one module per source."""
