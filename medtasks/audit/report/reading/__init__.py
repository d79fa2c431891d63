"""From what a run left on disk to what a report says."""
