"""Runs on disk: results, samples, manifests, shards and repeats, read and written in one place."""
