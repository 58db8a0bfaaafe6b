"""Reading an experiment's file with the files it includes, which lie below it: what it says itself wins."""

from __future__ import annotations

from pathlib import Path

from searchlab.errors import ConfigError
from searchlab.lab.config.text.reading import read
from searchlab.lab.config.text.tree import Map, Place, PlacedList

_MOST_BYTES = 4 << 20
_MERGED = ("budget", "report")  # joined key by key; everything else is taken whole
_FORM = "an experiment is a mapping, such as: workloads: [matmul]"


def read_file(path: str | Path, above: tuple[Path, ...] = (), where: Place | None = None) -> Map:
    """The tree of a file, its includes merged below it."""
    found, said = Path(path), f"{where}: " if where else ""
    text = _text(found, said)
    tree = read(text, str(path))
    if not isinstance(tree, Map):
        kind = "a list" if isinstance(tree, PlacedList) else "one value"
        raise ConfigError(f"{path}:1: {_FORM}; this file holds {kind}")
    return with_includes(tree, found, above)


def with_includes(tree: Map, path: Path, above: tuple[Path, ...] = ()) -> Map:
    """The tree without its `include`, with what the included files say below it."""
    if "include" not in tree:
        return tree
    given = tree["include"]
    files = given if isinstance(given, PlacedList) else PlacedList(tree.at("include"), [(given, tree.at("include"))])
    own = (*above, path.resolve())
    below = Map(tree.place)
    for number, name in enumerate(files):
        place = files.at(number)
        if not isinstance(name, str) or not name or "\0" in name:
            raise ConfigError(f"{place}: include takes file names, not {name!r}")
        target = path.parent / name
        if target.resolve() in own:
            raise ConfigError(f"{place}: '{name}' includes itself, by way of {' > '.join(p.name for p in own)}")
        below = merged(read_file(target, own, place), below)
    del tree["include"]
    return merged(tree, below)


def merged(top: Map, below: Map) -> Map:
    """What both say; where both do, what `top` says."""
    result = Map(top.place, ((k, v, below.at(k)) for k, v in below.items()))
    for key, value in top.items():
        old = result.get(key)
        if key in _MERGED and isinstance(value, Map) and isinstance(old, Map):
            value = merged(value, old)
        result.put(key, value, top.at(key))
    return result


def _text(path: Path, said: str) -> str:
    if path.is_dir():
        raise ConfigError(f"{said}{path} is a directory; name a YAML file in it{_files_in(path)}")
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{said}{path} is too large for an experiment: more than {_MOST_BYTES >> 20} MiB")
        raw = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{said}there is no file {path}{_files_in(path.parent)}") from None
    except OSError as e:
        raise ConfigError(f"{said}{path} cannot be read: {e.strerror or e}") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = raw.count(b"\n", 0, e.start) + 1
        raise ConfigError(f"{path}:{line}: byte {raw[e.start]:#04x} is not UTF-8; save the file as UTF-8") from None


def _files_in(folder: Path) -> str:
    names = sorted(p.name for p in folder.glob("*.y*ml"))[:8] if folder.is_dir() else []
    return f"; there is: {', '.join(names)}" if names else ""
