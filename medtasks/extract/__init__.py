"""Answer rules: from a raw reply to a value or the reason why there is none."""
