"""The border to the harness: the only code that knows its dictionary shapes."""
