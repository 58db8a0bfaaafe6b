"""Components by name: found, made with options, or refused with what would be accepted."""

from collections.abc import Iterable

import pytest

from searchlab.errors import ComponentError, SpaceError
from searchlab.registry import Registry
from searchlab.search import Sketch, SpaceGenerator, Task, menu
from searchlab.targets import detect
from searchlab.workloads import workload


class Tiny(SpaceGenerator):
    """One knob and no program."""

    name = "tiny"
    version = "1"

    def __init__(self, most: int = 3) -> None:
        self.most = most

    def sketches(self, task: Task) -> Iterable[Sketch]:
        return [Sketch("one", (menu("t", range(1, self.most + 1)),))] if self.most else []


@pytest.fixture
def registry() -> Registry[SpaceGenerator]:
    made: Registry[SpaceGenerator] = Registry("space", "searchlab.no-such-group", SpaceGenerator)
    made.add(Tiny)
    return made


TASK = Task(workload("matmul", m=8, n=8, k=8), detect())


def test_a_name_or_a_path_or_options(registry: Registry[SpaceGenerator]) -> None:
    assert registry.make("tiny").space(TASK).size.valid == 3
    assert registry.make({"tiny": {"most": 5}}).space(TASK).size.valid == 5
    assert registry.make({"tiny": None}).space(TASK).size.valid == 3
    assert registry.make("tiny", most=2).space(TASK).size.valid == 2
    assert type(registry.make(f"{__name__}:Tiny")).__name__ == "Tiny"
    ready = Tiny(7)
    assert registry.make(ready) is ready


@pytest.mark.parametrize(
    ("component", "message"),
    [
        ("tinny", "unknown space 'tinny'; did you mean 'tiny'? known: tiny"),
        ({"tiny": {"mots": 1}}, "space 'tiny': unknown option 'mots'; did you mean 'most'? accepted: most"),
        ("no.such.module:X", "cannot import 'no.such.module'"),
        (f"{__name__}:Missing", "has no 'Missing'"),
        (f"{__name__}:TASK", "is not a SpaceGenerator"),
        ({"a": {}, "b": {}}, "a space is a name"),
        ({"tiny": 3}, "a space is a name"),
    ],
)
def test_what_is_refused(registry: Registry[SpaceGenerator], component: object, message: str) -> None:
    with pytest.raises(ComponentError) as e:
        registry.make(component)  # type: ignore[arg-type]
    assert message in str(e.value)


def test_a_space_without_sketches_is_refused() -> None:
    with pytest.raises(SpaceError, match="space 'tiny' has nothing for matmul"):
        Tiny(0).space(TASK)
