"""Metrics that are models: RadGraph, CheXbert, BERTScore, and RadCliQ, which is made of them."""
