"""Labels of reports by a model such as CheXbert."""
