"""GMAI-MMBench: its published files, and the names it uses."""
