"""Review of drafts by experts: files, page, agreement, acceptance."""
