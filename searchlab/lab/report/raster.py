"""PNG from SVG with resvg, which is a small wheel and needs no browser."""

from __future__ import annotations

from importlib.util import find_spec

from searchlab.errors import ResultError

ZOOM = 2  # pixels per unit: sharp in print and on high-density screens


def available() -> bool:
    """Whether PNG files can be made."""
    return find_spec("resvg_py") is not None


def png_bytes(svg: str) -> bytes:
    """The picture as PNG."""
    if not available():
        raise ResultError(
            "PNG figures need the package resvg-py: pip install 'searchlab[figures]', or take the SVG files"
        )
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=ZOOM, background="white"))
