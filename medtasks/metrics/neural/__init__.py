"""Neural metrics: RadGraph, CheXbert, BERTScore, and RadCliQ, which combines them.

A file that is missing, damaged or of another model raises :class:`~medtasks.errors.WeightsMissing`, a device that is
not usable or too small for a single text :class:`~medtasks.errors.MedTasksError`.
"""
