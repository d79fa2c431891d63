"""The names ``medtasks.data.provenance_of.<name>`` of task YAML."""

from medtasks.data import prepared

__getattr__ = prepared.provenance_of
