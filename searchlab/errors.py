"""The errors that searchlab raises deliberately: one base class and one subclass per concern."""


class SearchLabError(Exception):
    """Base class of all errors that searchlab raises deliberately."""


class ScheduleError(SearchLabError):
    """A schedule primitive was asked for an illegal rewrite."""


class ConstraintError(ScheduleError):
    """The chosen integers violate a constraint of the schedule or of the target."""


class BuildError(SearchLabError):
    """A program cannot be compiled to code that runs on this machine."""


class BudgetError(BuildError):
    """A program's code exceeds the size limit for LLVM."""


class KernelError(SearchLabError, ValueError):
    """A compiled kernel was called with arguments it does not accept."""


class IRError(SearchLabError):
    """A tensor program is malformed."""


class GraphError(SearchLabError, ValueError):
    """A graph is malformed, cannot be read, or was run on values that it does not accept."""


class WorkloadError(SearchLabError, ValueError):
    """A workload is unknown or its parameters are invalid."""


class TargetError(SearchLabError, ValueError):
    """A target is unknown or its description is invalid."""


class TraceError(SearchLabError):
    """A recorded schedule cannot be read or replayed."""


class RecordError(SearchLabError):
    """Measurements cannot be stored, or a file of them cannot be read."""


class MeasureError(SearchLabError):
    """Candidates cannot be measured: no worker starts, or the cores are not available."""


class SpaceError(SearchLabError, ValueError):
    """A search space is inconsistent, has no valid point, or cannot be read."""


class ComponentError(SearchLabError, ValueError):
    """A space, cost model or strategy is unknown, cannot be loaded, or was given options that it does not accept."""


class ExportError(SearchLabError):
    """A program cannot be exported, or an export cannot be read."""


class ResultError(SearchLabError, ValueError):
    """Results lack the requested data, or cannot be compared or written."""


class ConfigError(SearchLabError, ValueError):
    """An experiment cannot be read or is invalid; `problems` has one line per problem."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
