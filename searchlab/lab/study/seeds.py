"""Seeds: one seed yields an independent generator per component, so adding a component does not affect the others."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Seeds:
    """Random generators by component name, all derived from one seed."""

    seed: int

    def generator(self, component: str) -> np.random.Generator:
        """The generator of a component; the same name gives the same stream."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(zlib.crc32(component.encode()),)))
