"""The report as Markdown and LaTeX tables."""
