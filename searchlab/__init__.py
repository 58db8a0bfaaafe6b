"""searchlab: a laboratory for search algorithms on tensor programs.

    import searchlab as sl
    w = sl.workload("matmul", m=512, n=512, k=512)
    out = sl.compile(sl.default_schedule(w.program, sl.detect()))(*w.inputs().values())

Names are imported when they are first used, so that importing the package costs next to nothing.
"""

# No import before a name is used: `python -m searchlab` comes here while the current folder is still searched first.
TYPE_CHECKING = False  # known to type checkers
if TYPE_CHECKING:
    from typing import Any

    from searchlab import graph
    from searchlab.backend import compile
    from searchlab.defaults import default_schedule
    from searchlab.ir import Builder, knob, size
    from searchlab.lab.export import load
    from searchlab.lab.study import Study, tune_family
    from searchlab.lab.tuning.tuned import Tuned
    from searchlab.lab.tuning.tuning import tune
    from searchlab.schedule import Schedule
    from searchlab.search import Task
    from searchlab.targets import Target, detect
    from searchlab.workloads import operator, workload

    __version__: str

__all__ = [
    "Builder", "Schedule", "Study", "Target", "Task", "Tuned", "__version__", "compile", "default_schedule", "detect",
    "graph", "knob", "load", "operator", "size", "tune", "tune_family", "workload",
]  # fmt: skip

_MODULES = {
    "Builder": "ir",
    "Schedule": "schedule",
    "Study": "lab.study",
    "Target": "targets",
    "Task": "search",
    "Tuned": "lab.tuning.tuned",
    "compile": "backend",
    "default_schedule": "defaults",
    "detect": "targets",
    "knob": "ir",
    "load": "lab.export",
    "operator": "workloads",
    "size": "ir",
    "tune": "lab.tuning.tuning",
    "tune_family": "lab.study",
    "workload": "workloads",
}


def __getattr__(name: str) -> "Any":
    if name == "__version__":
        found: Any = _version()
    elif name in _MODULES:
        from importlib import import_module

        found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    elif name == "graph":
        from importlib import import_module

        found = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    globals()[name] = found  # the next access does not come here
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(__name__)
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "0+unknown"
