"""The templates that call intrinsics: random points on odd sizes are right, and an option says where they are."""

import numpy as np
import pytest

from searchlab.backend import compile
from searchlab.errors import SpaceError
from searchlab.schedule import Schedule
from searchlab.search import Task
from searchlab.targets import detect, parse
from searchlab.workloads import parse as workload
from spaces.template import Config, TemplateSpace, registry, template

SPECS = [
    "matmul:m=19,n=43,k=21,dtype=uint8",
    "qdense:m=7,n=35,k=17,zero=3,out_zero=128",
    "qconv2d:ci=5,co=19,h=6,w=7,k=3,padding=1,zero=9",
    "qconv2d:n=2,ci=6,co=17,h=5,w=5,k=1,weight_zero=2",
    "conv2d:ci=7,co=33,h=9,w=8,k=3,stride=2,padding=1,dtype=int8",
]
FLOATS = [
    "matmul:m=29,n=67,k=13",
    "dense:m=31,n=71,k=7,activation=relu",
    "batch_matmul:batch=2,m=17,n=37,k=5",
    "conv2d:ci=3,co=37,h=5,w=17,k=3,padding=1",
]
MACHINES = ["x86-64-v3:threads=2", "native"]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("name", "spec"), [*(("calls", x) for x in SPECS), *(("kernels", x) for x in FLOATS)])
def test_random_points_are_right(name: str, spec: str, machine: str) -> None:
    target = parse(machine)
    if machine != "native" and not {"avx2", "fma"} <= detect().enabled_features():
        pytest.skip("this CPU lacks AVX2")
    task = Task(workload(spec), target)
    space = TemplateSpace(name).space(task)
    inputs = task.workload.inputs(seed=5)
    expected = task.workload.reference(inputs)
    for point in space.sample(4, np.random.default_rng(1)):
        program = space.program(point)
        assert "tensorized" in str(program)
        result = compile(program, target)(*inputs.values())
        assert task.workload.check(result, inputs, expected) is None, space.text(point)


def names(spec: str, intrinsics: str, machine: str = "x86-64-v3") -> set[str]:
    """The templates of a space."""
    made = TemplateSpace(intrinsics=intrinsics)  # type: ignore[arg-type]
    return {s.name.partition("/")[0] for s in made.sketches(Task(workload(spec), parse(machine)))}


@pytest.mark.parametrize(
    ("spec", "loops", "auto", "always"),
    [
        ("qdense:m=7,n=35,k=17", {"tiles"}, {"calls"}, {"calls"}),
        ("matmul:m=16,n=16,k=16", {"tiles"}, {"tiles"}, {"tiles", "kernels"}),
        ("matmul:m=3,n=16,k=16", {"tiles"}, {"tiles"}, {"tiles"}),  # fewer rows than any micro-kernel has
        ("softmax:rows=3,cols=9", {"rows"}, {"rows"}, {"rows"}),
    ],
)
def test_the_option_says_where_calls_are(spec: str, loops: set[str], auto: set[str], always: set[str]) -> None:
    assert names(spec, "never") == loops and names(spec, "auto") == auto and names(spec, "always") == always


def test_where_nothing_matches_the_space_is_the_same() -> None:
    for spec, machine in (("matmul:m=16,n=16,k=16", "x86-64-v3"), ("qdense:m=7,n=35,k=17", "x86-64-v2")):
        task = Task(workload(spec), parse(machine))
        ours, never = (list(TemplateSpace(intrinsics=x).sketches(task)) for x in ("auto", "never"))
        assert [(s.name, s.program.hash) for s in ours] == [(s.name, s.program.hash) for s in never]


def test_templates_of_users_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_TEMPLATES", dict(registry._TEMPLATES))

    @template("own", operator="qmatmul")
    def own(cfg: Config, s: Schedule, task: Task) -> None:
        cfg.split("i", s.loops("C")[0])

    assert names("qmatmul:m=8,n=16,k=8", "auto") == {"calls", "own"}


@pytest.mark.parametrize("spec", ["matmul:m=64,n=128,k=16", "qconv2d:ci=8,co=32,h=9,w=9", "batch_matmul:m=32,n=64"])
def test_seeds_are_calls(spec: str) -> None:
    for machine in ("x86-64-v3", "x86-64-v4"):
        task = Task(workload(spec), parse(machine))
        generator = TemplateSpace(intrinsics="always")
        space = generator.space(task)
        assert "tensorized" in str(space.program(generator.seeds(task, space)[0]))


def test_another_word_is_refused() -> None:
    with pytest.raises(SpaceError, match="intrinsics = 'sometimes': accepted are auto, always, never"):
        TemplateSpace(intrinsics="sometimes")  # type: ignore[arg-type]
