"""Hidet's paradigm on this IR: task mappings, programs written with them, and hardware-centric spaces."""

from spaces.task_mapping.mapping import TaskMapping, auto_map, call, custom, projection, repeat, spatial
from spaces.task_mapping.space import TaskMappingSpace
from spaces.task_mapping.write import Writer

__all__ = ["TaskMapping", "TaskMappingSpace", "Writer", "auto_map", "call", "custom", "projection", "repeat", "spatial"]
