"""The shape of the source tree in figures: sizes, branches, names used twice, import cycles, ladders of isinstance.

    python tools/shape.py [--names]

`tests/test_shape.py` holds the tree to these figures.
"""

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("searchlab", "spaces", "costmodels")
Function = ast.FunctionDef | ast.AsyncFunctionDef
BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.BoolOp, ast.comprehension, ast.match_case)
# The kinds of statements; a function that tests for three or more of them is a ladder.
LADDER = 3


def sources(root: Path = ROOT) -> dict[str, ast.Module]:
    """The parsed source of every module of the packages, keyed by dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return found


def path_of(module: str, root: Path = ROOT) -> Path:
    """The source file of a module or package."""
    path = root / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def lines_of(root: Path = ROOT) -> dict[str, int]:
    """The number of lines of every file."""
    paths = (path for package in PACKAGES for path in sorted((root / package).rglob("*.py")))
    return {str(path.relative_to(root)): len(path.read_text(encoding="utf-8").splitlines()) for path in paths}


def functions(trees: Mapping[str, ast.Module]) -> Iterator[tuple[str, Function]]:
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                yield f"{module}:{node.name}", node


def length(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def branches(function: Function) -> int:
    """One more than the decisions in a function, without those of nested functions."""
    count, todo = 1, list(ast.iter_child_nodes(function))
    while todo:
        node = todo.pop()
        if isinstance(node, Function | ast.Lambda):
            continue
        count += (len(node.values) - 1) if isinstance(node, ast.BoolOp) else isinstance(node, BRANCHES)
        todo += ast.iter_child_nodes(node)
    return count


def percentile(values: Iterable[int], share: float) -> int:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def used_twice(names: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Names that occur in more than one place, from pairs of name and place."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, place in names:
        places[name].append(place)
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


def classes_twice(trees: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """Public and private classes with the same name in several modules."""
    return used_twice(
        (node.name, module)
        for module, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )


def stems_twice(root: Path = ROOT) -> dict[str, list[str]]:
    """File names below searchlab/ that name more than one module, modules of commands aside."""
    paths = (path for path in sorted((root / "searchlab").rglob("*.py")) if not path.stem.startswith("__"))
    paths = (path for path in paths if path.parent.name != "cli")  # modules of commands are named after them
    return used_twice((path.stem, str(path.relative_to(root))) for path in paths)


def type_checking(tree: ast.Module) -> set[ast.AST]:
    """The nodes below `if TYPE_CHECKING`, which never run."""
    tests = (node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
    return {below for node in tests for below in ast.walk(node)}


def imports(module: str, tree: ast.Module, known: Mapping[str, object], is_package: bool) -> set[str]:
    """The modules of the packages that a module imports, anywhere in its source, except for types only."""
    parts = module.split(".")
    package = parts if is_package else parts[:-1]
    skipped = type_checking(tree)
    found: set[str] = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{start}.{alias.name}"
                found |= {inner} if inner in known else {start} & known.keys()
    return found - {module}


def import_graph(trees: Mapping[str, ast.Module], root: Path = ROOT) -> dict[str, set[str]]:
    packages = {name for name in trees if path_of(name, root).name == "__init__.py"}
    return {name: imports(name, tree, trees, name in packages) for name, tree in trees.items()}


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10_000)
    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def statement_kinds(trees: Mapping[str, ast.Module]) -> set[str]:
    """The statement classes of the IR: subclasses of `Stmt`, or the members of a union of that name."""
    nodes = [node for module, tree in trees.items() if module.startswith("searchlab.") for node in ast.walk(tree)]
    unions = (node.value for node in nodes if isinstance(node, ast.Assign) and _names(node.targets[0]) == {"Stmt"})
    kinds = {"Stmt"}.union(*map(_names, unions))
    bases = {node.name: set().union(*map(_names, node.bases)) for node in nodes if isinstance(node, ast.ClassDef)}
    while more := {name for name, above in bases.items() if above & kinds} - kinds:
        kinds |= more
    return kinds - {"Stmt"}


def asked_kinds(function: Function, kinds: set[str]) -> set[str]:
    """The statement kinds that a function distinguishes: by isinstance, by comparing types, or by a match."""
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and _names(node.func) == {"isinstance"} and len(node.args) == 2:
            found |= _names(node.args[1]) & kinds
        elif isinstance(node, ast.Compare) and isinstance(node.left, ast.Call) and "type" in _names(node.left.func):
            found |= set().union(*map(_names, node.comparators)) & kinds
        elif isinstance(node, ast.MatchClass):
            found |= _names(node.cls) & kinds
    return found


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def ladders(trees: Mapping[str, ast.Module]) -> list[str]:
    kinds = statement_kinds(trees)
    return [name for name, function in functions(trees) if len(asked_kinds(function, kinds)) >= LADDER]


def undocumented(trees: Mapping[str, ast.Module]) -> tuple[list[str], int]:
    """Public functions, methods and classes without a docstring, and the number of all."""
    missing, total = [], 0
    for module, tree in trees.items():
        todo: list[tuple[str, ast.AST]] = [(module, tree)]
        while todo:
            place, node = todo.pop()
            for child in ast.iter_child_nodes(node):
                if isinstance(child, Function | ast.ClassDef) and not child.name.startswith("_"):
                    total += 1
                    missing += [] if ast.get_docstring(child) else [f"{place}.{child.name}"]
                    if isinstance(child, ast.ClassDef):
                        todo.append((f"{place}.{child.name}", child))
    return missing, total


def broad_excepts(trees: Mapping[str, ast.Module]) -> list[str]:
    """The places where every exception is caught."""
    broad = {"Exception", "BaseException"}
    return [
        f"{module}:{node.lineno}"
        for module, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or broad & {part.id for part in ast.walk(node.type) if isinstance(part, ast.Name)})
    ]


def inner_imports(trees: Mapping[str, ast.Module]) -> list[str]:
    """Imports of our own modules inside functions."""
    found = []
    for name, function in functions(trees):
        for node in ast.walk(function):
            own = isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").partition(".")[0] in PACKAGES)
            if (
                own
                or isinstance(node, ast.Import)
                and any(alias.name.partition(".")[0] in PACKAGES for alias in node.names)
            ):
                found.append(f"{name}:{node.lineno}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--names", action="store_true", help="name what is counted")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to look at (default: this one)")
    options = parser.parse_args()
    root = options.root.resolve()
    trees = sources(root)
    sizes = lines_of(root)
    long = {name: length(node) for name, node in functions(trees) if length(node) > 70}
    missing, total = undocumented(trees)
    figures: list[tuple[str, object, Iterable[object]]] = [
        ("lines in all", sum(sizes.values()), ()),
        (
            "files over 500 lines",
            sum(size > 500 for size in sizes.values()),
            [name for name in sizes if sizes[name] > 500],
        ),
        ("functions over 70 lines", len(long), long.items()),
        (
            "branches p99",
            percentile((branches(node) for _, node in functions(trees)), 0.99),
            [f"{name} {branches(node)}" for name, node in functions(trees) if branches(node) > 13],
        ),
        ("class names used twice", len(classes_twice(trees)), classes_twice(trees).items()),
        ("file names used twice", len(stems_twice(root)), stems_twice(root).items()),
        ("import cycles", len(cycles(import_graph(trees, root))), cycles(import_graph(trees, root))),
        ("ladders over statements", len(ladders(trees)), ladders(trees)),
        ("imports inside functions", len(inner_imports(trees)), inner_imports(trees)),
        ("broad excepts", len(broad_excepts(trees)), broad_excepts(trees)),
        ("public docstrings, %", round(100 * (1 - len(missing) / total), 1), missing),
    ]
    for name, value, what in figures:
        print(f"{name:28} {value}")
        if options.names:
            for item in what:
                print(f"    {item}")


if __name__ == "__main__":
    main()
