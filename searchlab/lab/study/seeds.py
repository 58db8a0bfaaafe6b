"""Seeds: one number starts a generator for every component, and adding a component changes no other's."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Seeds:
    """Generators by component name, all from one seed."""

    seed: int

    def generator(self, component: str) -> np.random.Generator:
        """The generator of a component; the same name gives the same stream."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(zlib.crc32(component.encode()),)))
