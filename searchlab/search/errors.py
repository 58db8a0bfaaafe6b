"""The one error of search spaces."""

from searchlab.errors import SearchLabError


class SpaceError(SearchLabError, ValueError):
    """A search space makes no sense, holds no valid point, or cannot be read."""
