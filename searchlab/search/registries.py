"""The registries of components, by what experiments call their kinds."""

from __future__ import annotations

from typing import Any

from searchlab.registry import Registry
from searchlab.search.generator import SPACES
from searchlab.search.model import MODELS
from searchlab.search.strategy import STRATEGIES

REGISTRIES: dict[str, Registry[Any]] = {"space": SPACES, "model": MODELS, "strategy": STRATEGIES}
