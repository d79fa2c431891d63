"""Neural metrics. Missing or damaged files raise WeightsMissing, a device that is not usable a MedTasksError."""
