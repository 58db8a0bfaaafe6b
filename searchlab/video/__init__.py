"""Video: networks that compute what changed from frame to frame, on clips that are made or recorded.

    model = ResidualModel(module, ResidualOptions(rule="propagated"))
    stream = Stream(model, thresholds=0.02)
    outputs = [stream.frame(image) for image in clip]

`docs/video.md` explains the rules, and what the accounts count.
"""

from searchlab.video.accounting import (
    AcceleratorAccount,
    FrameAccount,
    LayerAccount,
    LayerSize,
    accelerator,
    frame_layers,
)
from searchlab.video.clips import ClipOptions, enlarged, made_clip, read_clip, write_clip
from searchlab.video.residual_graph import residual
from searchlab.video.residual_options import ResidualOptions
from searchlab.video.residual_plan import ChangePoint, KeptValue, ResidualLayer, ResidualPlan
from searchlab.video.stream import ResidualModel, Stream, StreamOptions, relative_error

__all__ = [
    "AcceleratorAccount", "ChangePoint", "ClipOptions", "FrameAccount", "KeptValue", "LayerAccount", "LayerSize",
    "ResidualLayer", "ResidualModel", "ResidualOptions", "ResidualPlan", "Stream", "StreamOptions", "accelerator",
    "enlarged", "frame_layers", "made_clip", "read_clip", "relative_error", "residual", "write_clip",
]  # fmt: skip
