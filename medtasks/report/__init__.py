"""Pages, tables, figures and exports of a run."""
