"""Templates of a user: knobs, structural choices, conditions, refusals."""

import numpy as np
import pytest

import searchlab as sl
from searchlab.errors import SpaceError
from searchlab.ir.algebra import ceildiv
from searchlab.schedule import Schedule
from searchlab.search import Space, Task
from searchlab.testing import check_space
from spaces.template import Config, Template, TemplateSpace, template
from spaces.template.generator import structures
from spaces.template.registry import _TEMPLATES, templates

TASK = Task(sl.workload("matmul", m=12, n=24, k=10), sl.detect(1))


def space_of(function: object, task: Task = TASK, most: int = 64) -> Space:
    return Space(list(structures(Template("mine", function), task, most, [])), "template", "1")  # type: ignore[arg-type]


def blocked(cfg: Config, s: Schedule, task: Task) -> None:
    i, j, k = s.loops("C")
    i0, i1 = cfg.split("i", i, parts=2, max_inner=6)
    j0, j1 = cfg.split("j", j, parts=2, tail=True, max_inner=16)
    (k0, k1) = cfg.split("k", k, policy="power2")
    cfg.reorder("order", [i0, j0], policy="all")
    s.reorder(i0, j0, k0, k1, i1, j1) if cfg.choose("deep", [True, False]) else s.reorder(k0, k1, i1, j1)
    cfg.annotate("ann", [i1, j1], policy="try_unroll_vec")
    unroll = cfg.knob("unroll", [1, 16, 64])
    s.annotate("C", "unroll_up_to", unroll)
    rows, columns = (s.program.loops[x].extent for x in (i1, j1))
    cfg.require(rows * ceildiv(columns, 4) <= 12)


def plain(cfg: Config, s: Schedule, task: Task) -> None:
    cfg.split("i", s.loops("C")[0])


def test_own_template_conforms() -> None:
    @template("mine", operator="matmul")
    def mine(cfg: Config, s: Schedule, task: Task) -> None:
        blocked(cfg, s, task)

    try:
        assert "mine" in templates("matmul")
        found = check_space(TemplateSpace("mine"), TASK, points=8)
        with pytest.raises(SpaceError, match="has a template 'mine' already"):
            template("mine", "matmul")(plain)
    finally:
        del _TEMPLATES["matmul", "mine"]
    assert [s.name for s in found.sketches][:2] == ["mine/order=i_0.j_0/deep=True", "mine/order=i_0.j_0/deep=False"]
    assert len(found.sketches) == 4
    values = found.values(found.sample(200, np.random.default_rng(0)))
    assert (values["i1"] * -(-values["j1"] // 4) <= 12).all()


def test_template_by_path() -> None:
    assert [s.name for s in TemplateSpace(f"{__name__}:plain").space(TASK).sketches] == ["plain"]


def test_knobs_of_policies() -> None:
    def many(cfg: Config, s: Schedule, task: Task) -> None:
        i, j, k = s.loops("C")
        cfg.split("i", i, 3, filter=lambda f: f[1] == 2)
        cfg.split("j", j, 2, policy="verbose", max_factor=8)
        cfg.split("k", k, 2, policy="candidate", candidates=[[-1, 4], [2, 5]])

    (sketch,) = space_of(many).sketches
    i, j, k = sketch.knobs
    assert (i.kind, i.symbols) == ("split", ("i0", "i1", "i2"))
    assert set(i.options[:, 1].tolist()) == {2} and set(i.options.prod(axis=1).tolist()) == {12}
    assert j.options[:, -1].tolist() == [1, 2, 3, 4, 6, 8]
    assert (k.kind, k.symbols, k.options.tolist()) == ("menu", ("k1",), [[4], [5]])


def test_tail_splits_have_a_knob_per_inner_loop() -> None:
    def tailed(cfg: Config, s: Schedule, task: Task) -> None:
        cfg.split("j", s.loops("C")[1], 3, tail=True, sizes=[5, 16])

    found = space_of(tailed)
    (sketch,) = found.sketches
    assert [k.name for k in sketch.knobs] == ["j1", "j2"]
    chosen = {tuple(r) for r in np.stack(list(sketch.values(sketch.all()).values()), axis=1).tolist()}
    assert (5, 5) in chosen and (6, 5) not in chosen  # five blocks of 5 cover 24, a sixth would be idle
    assert {j2 for _, j2 in chosen} == {5, 16}


def test_choices_are_met_depth_first_and_only_where_they_occur() -> None:
    def choosing(cfg: Config, s: Schedule, task: Task) -> None:
        plain(cfg, s, task)
        if cfg.choose("a", ["x", "y", "z"]) == "y":
            if cfg.choose("b", [1, 2]) == 2:
                cfg.skip("two is too many")
            cfg.knob("only_here", [1, 2])
        cfg.choose("alone", ["the only option"])

    found = space_of(choosing)
    assert [s.name for s in found.sketches] == ["mine/a=x", "mine/a=y/b=1", "mine/a=z"]
    assert [len(s.knobs) for s in found.sketches] == [1, 2, 1]


def test_unrolled_counts_loops_from_the_inside() -> None:
    def taps(cfg: Config, s: Schedule, task: Task) -> None:
        cfg.unrolled("unroll", s.loops("Y")[-2:], most=9)

    task = Task(sl.workload("conv2d", ci=3, co=4, h=5, w=5), sl.detect(1))
    found = space_of(taps, task)
    kinds = []
    for point in found.enumerate():
        loops = found.program(point).loops
        kinds.append([loops[x].kind for x in ("ci", "kh", "kw")])
    assert kinds == [["serial"] * 3, ["serial", "serial", "unrolled"], ["serial", "unrolled", "unrolled"]]


def _twice(cfg: Config, s: Schedule, task: Task) -> None:
    cfg.split("i", "i")
    cfg.split("i", "j")


def _again(cfg: Config, s: Schedule, task: Task) -> None:
    i0, _ = cfg.split("i", "i")
    cfg.split("o", i0)


def _too_many(cfg: Config, s: Schedule, task: Task) -> None:
    plain(cfg, s, task)
    cfg.choose("a", range(100))


def _illegal(cfg: Config, s: Schedule, task: Task) -> None:
    plain(cfg, s, task)
    s.parallel("k")


def _no_loop(cfg: Config, s: Schedule, task: Task) -> None:
    cfg.split("x", "x")


def _nothing_left(cfg: Config, s: Schedule, task: Task) -> None:
    cfg.split("i", "i", filter=lambda f: False)


def _bad_name(cfg: Config, s: Schedule, task: Task) -> None:
    cfg.knob("a b", [1])


def _clash(cfg: Config, s: Schedule, task: Task) -> None:
    cfg.split("i", "i")
    cfg.knob("i1", [1])


def _no_condition(cfg: Config, s: Schedule, task: Task) -> None:
    cfg.require(True)  # type: ignore[arg-type]


REFUSALS = [
    (_twice, "the name 'i' of a knob or choice is used twice"),
    (_again, "the extent 12 // i1 of loop 'i_0' depends on another knob; pass tail=True"),
    (_too_many, "more than 64 structures"),
    (_illegal, "'mine' on matmul.*cannot be parallel"),
    (_no_loop, "there is no loop 'x'; loops: i, j, k"),
    (_nothing_left, "no way to split 12 into 2 parts is left"),
    (_bad_name, "'a b' of a knob or choice is not made of letters"),
    (_clash, "has the symbol 'i1' already"),
    (_no_condition, "takes a condition on symbols"),
    (lambda cfg, s, task: None, "defines no knob"),
    (lambda cfg, s, task: cfg.split("i", "i", parts=1), "at least 2 parts"),
    (lambda cfg, s, task: cfg.choose("a", []), "choice 'a' has no options"),
    (lambda cfg, s, task: cfg.choose("a", [1, 1]), "lists an option twice"),
    (lambda cfg, s, task: cfg.reorder("o", ["i", "j"], policy="best"), "choice 'o': unknown policy 'best'"),
]


@pytest.mark.parametrize(("function", "message"), REFUSALS, ids=[m[:30] for _, m in REFUSALS])
def test_refusals(function: object, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        space_of(function)


def test_unknown_templates_are_refused() -> None:
    with pytest.raises(SpaceError, match="operator 'matmul' has no template 'tile'; did you mean 'tiles'"):
        TemplateSpace("tile").space(TASK)
    with pytest.raises(SpaceError, match="cannot import 'nowhere'"):
        TemplateSpace("nowhere:f").space(TASK)
    with pytest.raises(SpaceError, match="has no 'f'"):
        TemplateSpace("searchlab:f").space(TASK)


def test_what_suits_nothing_says_why() -> None:
    task = Task(sl.workload("conv2d", ci=4, co=4, h=5, w=5, k=3), sl.detect(1))
    with pytest.raises(SpaceError, match="pixels: its window is larger than one pixel"):
        TemplateSpace("pixels").space(task)
