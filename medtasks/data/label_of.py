"""The names ``medtasks.data.label_of.<name>`` of task YAML."""

from medtasks.data import prepared

__getattr__ = prepared.label_of
