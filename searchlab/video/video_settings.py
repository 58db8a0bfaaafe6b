"""What a search on a stream is about: a network, a clip, and the error that is accepted; as settings and as objects."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.errors import GraphError
from searchlab.registry import nearest
from searchlab.video.clips import ClipOptions, enlarged, made_clip, read_clip
from searchlab.video.residual_options import FLOAT32, GRANULARITIES, INT8, KERNELS, PRODUCTS, RULES

Array = npt.NDArray[Any]
_SIZES = ("frames", "height", "width")
_SEVERAL = ("rules", "blocks", "products")
_PRODUCTS = (*PRODUCTS, INT8)
_EXAMPLE = "{model: resnet18, clip: street.mp4, bound: {relative_error: 0.01}}"


@dataclass(frozen=True)
class VideoSettings:
    """A network on a clip, with the largest relative error of its output that is accepted at any frame.

    `clip` is a file, or what happens in a made clip (`ClipOptions` and a `seed`).  `frames` is how many of it are used,
    `size` takes the middle of so many rows and columns, and `enlarge` interpolates pixels.  `rules` are those that a
    search may choose from, and `blocks` (pixels that are passed on together) and `products` the same by rule
    "propagated"; with products of int8 the network is quantised, by the first frames.  `granularity` and `kernel` are
    as in `ResidualOptions`.  With `fit` the level of thresholds is no knob: every trial finds the largest that is
    within the bound.
    """

    model: str
    clip: str | Mapping[str, Any]
    relative_error: float
    frames: int = 24
    size: int | None = None
    enlarge: int = 1
    rules: tuple[str, ...] = ("propagated",)
    blocks: tuple[int | str, ...] = (1,)
    products: tuple[str, ...] = (FLOAT32,)
    granularity: str = "pixel"
    kernel: str = "skip"
    fit: bool = False
    digest: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model:
            raise GraphError(f"model = {self.model!r}; the name of a model, such as resnet18, is accepted")
        if not _is_number(self.relative_error) or not 0 < self.relative_error < 1:
            raise GraphError(f"bound: relative_error = {self.relative_error!r}; a share between 0 and 1 is accepted")
        for name, least in (("frames", 3), ("enlarge", 1), ("size", 1)):
            value = getattr(self, name)
            if not (name == "size" and value is None) and (type(value) is not int or value < least):
                raise GraphError(f"{name} = {value!r}; a whole number of at least {least} is accepted")
        if not isinstance(self.fit, bool):
            raise GraphError(f"fit = {self.fit!r}; true or false is accepted")
        if not self.rules:
            raise GraphError(f"rules is empty; accepted: {', '.join(RULES)}")
        if not self.blocks:
            raise GraphError("blocks is empty; numbers of pixels such as 1 and 4, or row, are accepted")
        if not self.products:
            raise GraphError(f"products is empty; accepted: {', '.join(_PRODUCTS)}")
        given = [("rules", r, RULES) for r in self.rules] + [("products", p, _PRODUCTS) for p in self.products]
        for name, value, known in (
            *given, ("granularity", self.granularity, GRANULARITIES), ("kernel", self.kernel, KERNELS)
        ):  # fmt: skip
            if value not in known:
                raise GraphError(f"{name} = '{value}'{nearest(str(value), known)}")

    @staticmethod
    def of(given: Any, folder: Path = Path()) -> VideoSettings:
        """The settings that a file writes; clips are sought relative to a folder."""
        if not isinstance(given, Mapping) or not {"model", "clip", "bound"} <= set(given):
            raise GraphError(f"a video is {_EXAMPLE}, not {given!r}")
        bound = given["bound"]
        if not isinstance(bound, Mapping) or set(bound) != {"relative_error"}:
            raise GraphError(f"bound = {bound!r}; accepted: {{relative_error: 0.01}}")
        known = {f.name for f in fields(VideoSettings)} - {"relative_error", "digest"} | {"bound"}
        for name in given:
            if name not in known:
                raise GraphError(f"a video takes no '{name}'{nearest(str(name), sorted(known))}")
        rest = {k: v for k, v in given.items() if k not in ("bound", "clip", *_SEVERAL)}
        for name in _SEVERAL:
            if name in given:
                rest[name] = tuple(given[name]) if isinstance(given[name], list | tuple) else (given[name],)
        clip, digest = _clip(given["clip"], folder)
        return VideoSettings(**rest, clip=clip, relative_error=bound["relative_error"], digest=digest)

    @property
    def plain(self) -> dict[str, Any]:
        """The settings as plain data, with everything that was not given at its default; `of` reads it."""
        found = asdict(self)
        del found["digest"]
        found["bound"] = {"relative_error": found.pop("relative_error")}
        found |= {name: list(getattr(self, name)) for name in _SEVERAL}
        if self.products == (FLOAT32,):  # as before there was a choice, so that earlier searches keep their names
            del found["products"]
        return found

    @property
    def text(self) -> str:
        """The same for settings that are the same, wherever the clip lies."""
        clip = self.digest or self.plain["clip"]
        return json.dumps({**self.plain, "clip": clip}, sort_keys=True)

    @property
    def clip_name(self) -> str:
        """What a clip is called for people; a made one by what happens in it."""
        if isinstance(self.clip, str):
            return Path(self.clip).name.partition(".")[0]
        plain = asdict(ClipOptions()) | {"cuts": [], "seed": 0}
        happens = [f"{k} {v}" for k, v in self.clip.items() if k not in _SIZES and v != plain[k]]
        return f"made clip ({', '.join(happens)})" if happens else "made clip"

    @property
    def label(self) -> str:
        """For people: resnet18 on street within 1 %."""
        larger = f", {self.enlarge} times as large," if self.enlarge > 1 else ""
        head, colon, rest = Path(self.model).name.partition(":")
        name = f"{head if head.endswith('.py') else head.rpartition('.')[2]}{colon}{rest}"
        return f"{name} on {self.clip_name}{larger} within {100 * self.relative_error:g} %"

    def read(self) -> Array:
        """The frames of the clip."""
        if isinstance(self.clip, str):
            found = read_clip(self.clip, self.size)
        else:
            found = made_clip(_options(self.clip), np.random.default_rng(self.clip.get("seed", 0)))
        return enlarged(found[: self.frames], self.enlarge)


def _options(given: Mapping[str, Any]) -> ClipOptions:
    """The options of a made clip, which files write as lists and numbers, without its seed."""
    options: dict[str, Any] = {k: tuple(v) if k == "cuts" else v for k, v in given.items() if k != "seed"}
    return ClipOptions(**options)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _clip(given: Any, folder: Path) -> tuple[str | dict[str, Any], str]:
    """A clip with all its options, or its whole path and a digest of what it holds."""
    if isinstance(given, Mapping):
        known = [f.name for f in fields(ClipOptions)]
        for name in given:
            if name not in (*known, "seed"):
                raise GraphError(f"clip: there is no option '{name}'{nearest(str(name), [*known, 'seed'])}")
        try:
            made = asdict(_options(given))
        except TypeError as e:
            raise GraphError(f"clip: {e}") from None
        return made | {"cuts": list(made["cuts"]), "seed": given.get("seed", 0)}, ""
    if not isinstance(given, str) or not given:
        raise GraphError(f"clip = {given!r}; a file, or a mapping such as {{noise: 0.005, objects: 2}}, is accepted")
    path = folder / given
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    except OSError as e:
        raise GraphError(f"the clip {path} cannot be read: {e.strerror or e}") from None
    return str(path), digest
