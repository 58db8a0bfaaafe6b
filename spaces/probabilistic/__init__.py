"""The probabilistic space: a program draws random variables and transforms with them; its traces are the points."""

from spaces.probabilistic.calling import CallTiling
from spaces.probabilistic.generator import ProbabilisticSpace
from spaces.probabilistic.instruction import Decision, Handle, Instruction
from spaces.probabilistic.mutators import (
    DEFAULT_MUTATORS,
    MutateComputeLocation,
    MutateParallel,
    MutateTileSize,
    MutateUnroll,
    Mutator,
)
from spaces.probabilistic.postprocess import (
    DEFAULT_POSTPROCESSORS,
    DisallowDynamicLoops,
    Postprocessor,
    RewriteLayout,
    RewriteParallelVectorizeUnroll,
    RewriteReduction,
    VerifyTile,
)
from spaces.probabilistic.replaying import Replayed, replay
from spaces.probabilistic.rules import (
    DEFAULT_RULES,
    AddRFactor,
    AutoInline,
    CollapsedPanelTiling,
    CollapsedTiling,
    CustomRule,
    InlineConstants,
    MultiLevelTiling,
    OperandPanelTiling,
    ParallelizeVectorizeUnroll,
    RandomComputeLocation,
    WeightPanelTiling,
)
from spaces.probabilistic.schedule import ProbabilisticSchedule
from spaces.probabilistic.schedule_rule import ScheduleRule
from spaces.probabilistic.space import TraceSpace
from spaces.probabilistic.trace import Trace

__all__ = [
    "DEFAULT_MUTATORS", "DEFAULT_POSTPROCESSORS", "DEFAULT_RULES", "AddRFactor", "AutoInline", "CallTiling",
    "CollapsedPanelTiling", "CollapsedTiling", "CustomRule", "Decision", "DisallowDynamicLoops", "Handle",
    "InlineConstants", "Instruction", "MultiLevelTiling", "MutateComputeLocation", "MutateParallel",
    "MutateTileSize", "MutateUnroll", "Mutator", "OperandPanelTiling", "WeightPanelTiling",
    "ParallelizeVectorizeUnroll", "Postprocessor", "ProbabilisticSchedule", "ProbabilisticSpace",
    "RandomComputeLocation", "Replayed", "RewriteLayout", "RewriteParallelVectorizeUnroll", "RewriteReduction",
    "ScheduleRule", "Trace", "TraceSpace", "VerifyTile", "replay",
]  # fmt: skip
