"""CheXbert: 14 conditions and one vector per report, from one forward pass."""
