"""Every error searchlab raises on purpose: one base class, one leaf per concern, so callers catch what they mean."""


class SearchLabError(Exception):
    """Base of all errors searchlab raises on purpose."""


class ScheduleError(SearchLabError):
    """A schedule primitive was asked for a rewrite that would not be legal."""


class ConstraintError(ScheduleError):
    """The chosen integers violate a constraint of the schedule or of the target."""


class BuildError(SearchLabError):
    """A program could not be turned into code that runs on this machine."""


class BudgetError(BuildError):
    """A program's code is larger than may be handed to LLVM."""


class KernelError(SearchLabError, ValueError):
    """A compiled kernel was called with arguments it does not accept."""


class IRError(SearchLabError):
    """A tensor program is malformed."""


class WorkloadError(SearchLabError, ValueError):
    """A workload is unknown or its parameters make no sense."""


class TargetError(SearchLabError, ValueError):
    """A target is unknown or its description makes no sense."""


class TraceError(SearchLabError):
    """A recorded schedule cannot be read or replayed."""


class RecordError(SearchLabError):
    """Measurements cannot be stored, or a file of them cannot be read."""


class MeasureError(SearchLabError):
    """Candidates cannot be measured: no worker starts, or the cores are not to be had."""


class SpaceError(SearchLabError, ValueError):
    """A search space makes no sense, holds no valid point, or cannot be read."""


class ComponentError(SearchLabError, ValueError):
    """A space, cost model or strategy is unknown, cannot be loaded, or was given options that it does not take."""


class ExportError(SearchLabError):
    """A program cannot be taken out of the laboratory, or what was taken out cannot be read."""


class ResultError(SearchLabError, ValueError):
    """Results of experiments do not hold what is asked of them."""


class ConfigError(SearchLabError, ValueError):
    """An experiment cannot be read or makes no sense; `problems` has one line for each thing that is wrong."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
