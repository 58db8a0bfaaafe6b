"""The registries of components, keyed by the names that experiments use for their kinds."""

from __future__ import annotations

from typing import Any

from searchlab.registry import Registry
from searchlab.search.generator import SPACES
from searchlab.search.model import MODELS
from searchlab.search.strategy import STRATEGIES

REGISTRIES: dict[str, Registry[Any]] = {"space": SPACES, "model": MODELS, "strategy": STRATEGIES}
