"""Code referenced by name: nothing is called before it is known to fit its role."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from searchlab.errors import SearchLabError, SpaceError
from searchlab.named import Named
from searchlab.search import MODELS, SPACES, STRATEGIES, Strategy, Task
from searchlab.targets import parse as target
from searchlab.workloads import workload
from spaces.probabilistic import ProbabilisticSpace
from spaces.sketch import SketchSpace
from spaces.template import TemplateSpace

TASK = Task(workload("matmul", m=8, n=8, k=8), target("x86-64-v3"))


class Loud:
    """A class of no role."""

    def __init__(self, *anything: Any, **more: Any) -> None:
        sys.exit("made")


def loud(*anything: Any, **more: Any) -> None:
    sys.exit("called")


UNNAMED = lambda *anything, **more: sys.exit("called")  # noqa: E731
OBJECT = object.__new__(Loud)

STRANGERS = [
    "os:abort",
    "sys:exit",
    "builtins:print",
    "os:getcwd",
    "os:path",
    "subprocess:Popen",
    "subprocess:run",
    "shutil:rmtree",
    "numpy:save",
    "searchlab.cli:main",
    f"{__name__}:UNNAMED",
    f"{__name__}:OBJECT",
    f"{__name__}:Loud",
    "searchlab.search:Space",
]
ROLES: dict[str, Callable[[str], object]] = {
    "strategy": lambda path: STRATEGIES.make(path),
    "model": lambda path: MODELS.make(path),
    "space": lambda path: SPACES.make(path),
    "operator": workload,
    "rule of sketches": lambda path: SketchSpace(rules=[path]),
    "further rule of sketches": lambda path: SketchSpace(more_rules=[path]),
    "template": lambda path: TemplateSpace(path).space(TASK),
    "probabilistic rule": lambda path: ProbabilisticSpace(rules=[path]),
    "mutator": lambda path: ProbabilisticSpace(mutators=[path]),
    "postprocessor": lambda path: ProbabilisticSpace(postprocessors=[path]),
    "program": lambda path: ProbabilisticSpace(program=path),
}


@pytest.mark.parametrize("path", STRANGERS)
@pytest.mark.parametrize("role", ROLES)
def test_a_stranger_is_refused_before_it_is_called(role: str, path: str) -> None:
    with pytest.raises(SearchLabError, match=f"'{path}' is .*; accepted: a (class|function)"):
        ROLES[role](path)


@pytest.mark.parametrize("role", [r for r in ROLES if r not in ("operator", "template", "program")])
def test_a_function_is_not_a_class(role: str) -> None:
    with pytest.raises(SearchLabError, match="is the function loud of .*; accepted: a class that extends"):
        ROLES[role](f"{__name__}:loud")


def test_a_class_of_another_role_is_refused() -> None:
    with pytest.raises(SearchLabError, match=r"is the class Random of .*not a CostModel; .*extends searchlab\.search"):
        MODELS.make("searchlab.strategies:Random")


@pytest.mark.parametrize("path", ["", ":", "os:", ":abort", ".os:abort", "os.:abort", "os:path.join", "a b:c"])
def test_what_is_not_a_path_is_refused(path: str) -> None:
    with pytest.raises(SpaceError, match="it: '.*' is not of the form module:name"):
        _ = Named(path, "it", SpaceError).found


def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch, module: str, text: str) -> Path:
    """A module in a folder where modules are looked for last."""
    file = folder / f"{module}.py"
    file.write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    monkeypatch.delitem(sys.modules, module, raising=False)
    return file


def test_a_function_must_take_what_it_will_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_folder(tmp_path, monkeypatch, "my_functions", "def f(a, b, c, d): ...\ndef g(a, b, c, d=1): ...")
    with pytest.raises(SpaceError, match=r"it takes \(a, b, c, d\); accepted: a function of \(cfg, s, task\)"):
        Named("my_functions:f", "it", SpaceError).function(Task, takes=("cfg", "s", "task"))
    assert Named("my_functions:g", "it", SpaceError).function(Task, takes=("cfg", "s", "task"))


def test_an_installed_function_says_what_it_was_written_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from searchlab.search import Task\ndef plain(s): ...\ndef marked(s: Task): ...\ndef text(s: 'a.Task'): ..."
    (folder := tmp_path / "site-packages").mkdir()
    in_folder(folder, monkeypatch, "installed_functions", text)
    for name in ("marked", "text"):
        assert Named(f"installed_functions:{name}", "it", SpaceError).function(Task, takes=("s",))
    with pytest.raises(SpaceError, match="not written for this; .*of your own, or one whose annotations name .*Task"):
        Named("installed_functions:plain", "it", SpaceError).function(Task, takes=("s",))


@pytest.mark.parametrize("end", ["raise SystemExit(3)", "1 / 0", "import no_such_module"])
def test_a_module_that_cannot_be_imported(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_folder(tmp_path, monkeypatch, "ending_module", end)
    with pytest.raises(SpaceError, match="^it.* import"):
        _ = Named("ending_module:x", "it", SpaceError).found


def test_a_hidden_module_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from searchlab.strategies import Random\nclass Mine(Random): ...\nraise SystemExit('imported')"
    file = in_folder(tmp_path, monkeypatch, "colorsys", text)
    hint = f"a module 'colorsys' that comes with Python hides {file}: give yours another name"
    with pytest.raises(SearchLabError, match=f"module 'colorsys' has no 'Mine'; {hint}"):
        STRATEGIES.make("colorsys:Mine")
    with pytest.warns(UserWarning, match=f"it; {hint}"):
        _ = Named("colorsys:rgb_to_hsv", "it", SpaceError).found


def test_the_one_module_of_a_name_hides_nothing(recwarn: pytest.WarningsRecorder) -> None:
    assert issubclass(Named("searchlab.strategies:Random", "it", SpaceError).subclass(Strategy), Strategy)
    assert not recwarn.list
