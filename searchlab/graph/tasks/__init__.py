"""Tasks of graphs: what there is to tune in a model, as workloads that any search takes."""

from searchlab.graph.tasks.graph_tasks import GraphTask, graph_tasks
from searchlab.graph.tasks.model_tasks import at_sizes, model_tasks, sizes_of, worth_tuning
from searchlab.graph.tasks.reference_functions import with_references
from searchlab.graph.tasks.task_workload import GraphWorkload, graph_task, program_key, task_workload

__all__ = [
    "GraphTask", "GraphWorkload", "at_sizes", "graph_task", "graph_tasks", "model_tasks", "program_key",
    "sizes_of", "task_workload", "with_references", "worth_tuning",
]  # fmt: skip
