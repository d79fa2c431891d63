"""Published extractors, which reproduce the code of papers and toolkits with its faults."""
