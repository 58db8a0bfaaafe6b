"""From the text of a YAML file to a tree that knows its lines; what YAML would let pass silently is refused."""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from searchlab.errors import ConfigError
from searchlab.lab.config.text.scalars import Trap, meaning
from searchlab.lab.config.text.tree import Map, Place, PlacedList, Problems

_MOST_NODES = 20_000  # after aliases are written out
_MOST_DEPTH = 60
_PLAIN = {"null", "bool", "int", "float", "str", "timestamp", "merge", "value", "seq", "map"}
_TAG = "tag:yaml.org,2002:"


def read(text: str, file: str, place: Place | None = None) -> Any:
    """The tree of a document; `file` is how messages call it.  With a `place`, all of it was written there."""
    try:
        events = _Loader(text)
        try:
            node = events.get_single_node()
        finally:
            events.dispose()
    except yaml.YAMLError as e:
        line, what = _syntax(e, text)
        raise ConfigError(f"{place or Place(file, line)}: invalid YAML: {what}") from None
    except _TooDeep as e:
        where = place or Place(file, e.line)
        raise ConfigError(f"{where}: nested too deeply; at most {_MOST_DEPTH} levels") from None
    if node is None:
        raise ConfigError(
            f"{place or Place(file, 1)}: the file is empty; an experiment has at least: workloads: [matmul]"
        )
    problems = Problems()
    tree = _Builder(file, problems, place).build(node, ())
    problems.raise_any()
    return tree


class _TooDeep(Exception):
    def __init__(self, line: int) -> None:
        self.line = line


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """Stops where values are nested too deeply; reading on would take minutes."""

    _depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        if self._depth > _MOST_DEPTH:
            raise _TooDeep(self.peek_event().start_mark.line + 1)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


class _Builder:
    """Turns nodes into trees; aliases are written out, each copy counts."""

    def __init__(self, file: str, problems: Problems, fixed: Place | None) -> None:
        self.file, self.problems, self.fixed, self.left = file, problems, fixed, _MOST_NODES

    def build(self, node: Node, above: tuple[int, ...]) -> Any:
        self.left -= 1
        if self.left < 0:
            raise ConfigError(f"{self.place(node)}: aliases expand the file to more than {_MOST_NODES} values")
        if id(node) in above:
            raise ConfigError(f"{self.place(node)}: an anchor contains itself")
        if len(above) > _MOST_DEPTH:
            raise ConfigError(f"{self.place(node)}: nested too deeply; at most {_MOST_DEPTH} levels")
        self._check_tag(node)
        if isinstance(node, ScalarNode):
            return self.scalar(node)
        above = (*above, id(node))
        if isinstance(node, SequenceNode):
            return PlacedList(self.place(node), ((self.build(n, above), self.place(n)) for n in node.value))
        return self.mapping(node, above)

    def scalar(self, node: ScalarNode) -> Any:
        if node.style is not None:
            return node.value
        try:
            return meaning(node.value)
        except Trap as e:
            self.problems.add(self.place(node), str(e))
            return node.value

    def mapping(self, node: MappingNode, above: tuple[int, ...]) -> Map:
        made, merged = Map(self.place(node)), []
        for key, value in node.value:
            if key.tag == f"{_TAG}merge":
                merged.append((self.place(key), self.build(value, above)))
                continue
            name = self.key(key)
            if name in made:
                self.problems.add(self.place(key), f"'{name}' is given twice; first on line {made.at(name).line}")
            made.put(name, self.build(value, above), self.place(value if isinstance(value, ScalarNode) else key))
        for place, below in merged:
            self._merge(made, place, below)
        return made

    def key(self, node: Node) -> str:
        if not isinstance(node, ScalarNode):
            self.problems.add(self.place(node), "a key is a word, not a list or a mapping")
            return "?"
        if node.style is None and (node.value in ("", "~") or not isinstance(_meaning(node.value), str)):
            self.problems.add(self.place(node), f"a key is text, not {node.value or 'nothing'}; put it in quotes")
        return str(node.value)

    def _merge(self, made: Map, place: Place, below: Any) -> None:
        parts = below if isinstance(below, PlacedList) else [below]
        for part in parts:
            if not isinstance(part, Map):
                self.problems.add(place, "'<<' takes a mapping, such as an alias of one")
                continue
            for key, value in part.items():
                if key not in made:
                    made.put(key, value, part.at(key))

    def _check_tag(self, node: Node) -> None:
        if node.tag.removeprefix(_TAG) not in _PLAIN:
            self.problems.add(
                self.place(node), f"the tag {node.tag.replace(_TAG, '!!')} is not accepted; use plain values"
            )

    def place(self, node: Node) -> Place:
        return self.fixed or Place(self.file, node.start_mark.line + 1)


def _meaning(key: str) -> Any:
    try:
        return meaning(key)
    except Trap:  # keys are always text, so `on` can only be the word
        return key


def _syntax(error: yaml.YAMLError, text: str) -> tuple[int, str]:
    """The line of a mistake, and what it is in plain words."""
    mark = getattr(error, "problem_mark", None)
    what = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
    line = mark.line + 1 if mark is not None else 1
    if mark is None and (position := getattr(error, "position", None)) is not None:
        line = text.count("\n", 0, position) + 1
        what = f"the character {text[position]!r} is not allowed"
    lines = text.splitlines()
    here = lines[line - 1] if line <= len(lines) else ""
    if "'\\t'" in what or re.match(r"\s*\t", here):
        what = "a tab; YAML is indented with spaces"
    elif "expected a single document" in str(error):
        what = "a second document begins here; a file holds one experiment"
    elif "mapping values are not allowed" in what:
        what = "a ':' where none can be; put text that holds ': ' in quotes, and check the indentation"
    elif "undefined alias" in what:
        what = what.replace("found undefined alias", "no anchor is called")
    return line, what
