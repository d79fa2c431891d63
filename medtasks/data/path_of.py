"""The names ``medtasks.data.path_of.<name>`` of task YAML."""

from medtasks.data import prepared

__getattr__ = prepared.path_of
