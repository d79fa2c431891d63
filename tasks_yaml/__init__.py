"""Task definitions: one folder per benchmark, YAML only."""
