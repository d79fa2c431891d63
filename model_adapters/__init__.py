"""Model adapters for the harness's generation and log-likelihood loops."""
