"""Parts of a reply that several extractors read: letters, names, numbers, negation."""
