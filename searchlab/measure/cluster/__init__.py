"""Measuring on a Ray cluster: one actor per device slot, on this machine or on many.  Ray is imported on first use."""

from searchlab.measure.cluster.measurer import RayMeasurer

__all__ = ["RayMeasurer"]
