"""Tasks of graphs: what there is to tune in a model, as workloads that any search takes."""

from searchlab.graph.tasks.graph_tasks import CalledFunction, GraphTask, graph_tasks
from searchlab.graph.tasks.model_tasks import model_tasks, sizes_of, task_counts, worth_tuning
from searchlab.graph.tasks.reference_functions import with_references
from searchlab.graph.tasks.task_family import TaskFamily
from searchlab.graph.tasks.task_workload import (
    GraphWorkload,
    graph_task,
    plain_sizes,
    program_key,
    task_workload,
    with_plain_sizes,
)

__all__ = [
    "CalledFunction", "GraphTask", "GraphWorkload", "TaskFamily", "graph_task", "graph_tasks", "model_tasks",
    "plain_sizes", "program_key", "sizes_of", "task_counts", "task_workload", "with_plain_sizes", "with_references",
    "worth_tuning",
]  # fmt: skip
