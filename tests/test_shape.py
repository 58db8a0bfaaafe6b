"""The shape of the tree: what tools/shape.py counts stays within bounds, and it finds what it is there to find."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import shape  # noqa: E402

sys.path.remove(str(ROOT / "tools"))


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    found = shape.sources()
    assert {"searchlab.ir", "spaces", "costmodels"} <= found.keys(), "the walk would prove nothing"
    return found


def test_files_are_short() -> None:
    assert {name: size for name, size in shape.lines_of().items() if size > 500} == {}


def test_functions_are_short(trees: dict[str, ast.Module]) -> None:
    assert [name for name, node in shape.functions(trees) if shape.length(node) > 70] == []


def test_functions_decide_little(trees: dict[str, ast.Module]) -> None:
    assert shape.percentile((shape.branches(node) for _, node in shape.functions(trees)), 0.99) <= 13


def test_a_class_name_means_one_thing(trees: dict[str, ast.Module]) -> None:
    assert shape.classes_twice(trees) == {}


def test_a_file_name_means_one_thing() -> None:
    assert shape.stems_twice() == {}


def test_imports_make_no_cycle(trees: dict[str, ast.Module]) -> None:
    assert shape.cycles(shape.import_graph(trees)) == []


def test_a_new_statement_kind_meets_no_ladder(trees: dict[str, ast.Module]) -> None:
    assert shape.ladders(trees) == []


def test_whatever_catches_everything_gives_a_reason(trees: dict[str, ast.Module]) -> None:
    places = [place.split(":") for place in shape.broad_excepts(trees)]
    lines = {name: shape.path_of(name).read_text(encoding="utf-8").splitlines() for name, _ in places}
    assert [(name, at) for name, at in places if "#" not in "".join(lines[name][int(at) - 1 : int(at) + 1])] == []


def test_public_things_are_documented(trees: dict[str, ast.Module]) -> None:
    for package in shape.PACKAGES:
        own = {name: tree for name, tree in trees.items() if name.partition(".")[0] == package}
        missing, total = shape.undocumented(own)
        assert len(missing) <= 0.15 * total, f"{package}: {missing}"


# --- what the counts count --------------------------------------------------------------------------------------------


def module(text: str) -> dict[str, ast.Module]:
    return {"searchlab.made": ast.parse(text)}


def test_branches_are_counted() -> None:
    (f,) = ast.parse("def f(a, b):\n    if a and b or a:\n        return [x for x in a]\n    return a if b else b").body
    assert isinstance(f, ast.FunctionDef)
    assert shape.branches(f) == 6  # one way, an if, two operators, a comprehension, a choice


def test_classes_of_one_name_are_found() -> None:
    trees = {"a": ast.parse("class C: ..."), "b": ast.parse("def f():\n    class C: ..."), "c": ast.parse("C = 1")}
    assert shape.classes_twice(trees) == {"C": ["a", "b"]}


def test_cycles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert shape.cycles(graph) == [["b", "c"]]


def test_imports_inside_functions_count_and_those_for_types_do_not() -> None:
    never = "if TYPE_CHECKING:\n    import searchlab.a\n"
    text = never + "def f():\n    from searchlab import b\n    from searchlab.c import d"
    known = {"searchlab": None, "searchlab.a": None, "searchlab.b": None, "searchlab.c": None, "searchlab.made": None}
    assert shape.imports("searchlab.made", ast.parse(text), known, is_package=False) == {"searchlab.b", "searchlab.c"}


def test_ladders_are_found() -> None:
    kinds = "class Stmt: ...\nclass A(Stmt): ...\nclass B(Stmt): ...\nclass C(A): ...\n"
    ladder = "def f(s):\n    if isinstance(s, (A, B)): ...\n    elif type(s) is C: ...\n"
    assert shape.ladders(module(kinds + ladder)) == ["searchlab.made:f"]
    assert shape.ladders(module(kinds + "def f(s):\n    return isinstance(s, (A, B))")) == []


def test_broad_excepts_are_found() -> None:
    text = "try: ...\nexcept (OSError, Exception): ...\ntry: ...\nexcept OSError: ..."
    assert shape.broad_excepts(module(text)) == ["searchlab.made:2"]
