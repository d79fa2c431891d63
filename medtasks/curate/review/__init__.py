"""Review of drafts by experts: files, page, spreadsheet, agreement, acceptance."""
