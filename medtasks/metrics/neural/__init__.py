"""Metrics that are models: RadGraph, CheXbert, BERTScore, and RadCliQ, which is made of them.

Where a file is missing, damaged or of another model, they raise :class:`~medtasks.errors.WeightsMissing`, and where the
device cannot be used or is too small for a single text, :class:`~medtasks.errors.MedTasksError`. Both say what helps.
"""
