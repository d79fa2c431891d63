"""Pages, tables, figures, checklists and exports of a run."""
