"""What prompts begin with is read once."""
