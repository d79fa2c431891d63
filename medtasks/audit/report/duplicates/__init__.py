"""What is shown of duplicate pictures."""
