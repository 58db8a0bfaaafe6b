"""Derivation: the structures that rules give, against those of the paper."""

from collections.abc import Iterator

import pytest

import searchlab as sl
from searchlab.errors import SpaceError
from searchlab.schedule import Schedule
from searchlab.search import SPACES, Task
from searchlab.targets import parse as target
from searchlab.workloads import operators
from spaces.sketch import DEFAULT_RULES, Answer, Rule, SketchSpace, State
from spaces.sketch.rules import CacheWrite, Inline, PackOperand, PackWeights, Rfactor, Skip, Tile, TileAndFuse

TARGET = target("x86-64-v3:threads=2")
PAPER = (Inline(), Rfactor(), CacheWrite(), TileAndFuse(), Tile(), Skip())


def task(name: str, **params: object) -> Task:
    return Task(sl.workload(name, **params), TARGET)


def names(generator: SketchSpace, at: Task) -> list[str]:
    return [s.name for s in generator.derived(at)]


def loops(state: State, block: str) -> list[str]:
    return Schedule(state.program).loops(block)


def test_matmul_has_the_loops_of_the_paper() -> None:
    (plain,) = SketchSpace(rules=[Tile(), Skip()]).derived(task("matmul", m=64, n=64, k=64))
    assert loops(plain, "C") == ["i_0_j_0", "i_1", "j_1", "k_0", "i_2", "j_2", "k_1", "i_3", "j_3"]
    assert [(k.name, k.symbols) for k in plain.knobs] == [
        ("i", ("i0", "i1", "i2", "i3")),
        ("j", ("j0", "j1", "j2", "j3")),
        ("k", ("k0", "k1")),
    ]
    assert max(k.options[:, -1].max() for k in plain.knobs) == 64


def test_rules_of_the_paper() -> None:
    paper = SketchSpace(rules=PAPER)
    assert names(paper, task("matmul", m=64, n=64, k=64)) == ["tile", "cache-tile-fuse1", "cache-tile-fuse2"]
    assert names(paper, task("dense", m=64, n=64, k=64)) == ["tile-fuse1", "tile-fuse2", "tile"]
    assert names(paper, task("elementwise", rows=8, cols=8)) == ["plain"]


def test_a_norm_is_factored() -> None:
    at = task("l2_norm", batch=1, rows=64, cols=64)
    assert names(SketchSpace(), at) == ["rfactor_outer(S)", "rfactor_inner(S)", "plain"]
    outer, inner, _ = SketchSpace().derived(at)
    assert {len(k.symbols) for k in outer.knobs} == {3} and {len(k.symbols) for k in inner.knobs} == {2}


def test_a_cache_node_leaves_the_stage_to_be_visited_again() -> None:
    start = SketchSpace(rules=[Skip()]).derived(task("matmul", m=8, n=8, k=8))[0]
    before = State.start(start.settings)
    (after,) = CacheWrite().apply(before, "C")
    assert after.todo == before.todo == ("C",)
    assert CacheWrite().applies(after, "C") is Answer.SKIP
    assert TileAndFuse().applies(after, "C") is Answer.APPLY_AND_SKIP_REST


def test_weights_and_data_are_packed() -> None:
    assert names(SketchSpace(), task("matmul", m=64, n=64, k=64))[:2] == ["layout", "pack"]
    assert "layout" not in names(SketchSpace(), task("batch_matmul", batch=2, m=16, n=16, k=16))
    (ahead, *_) = SketchSpace(rules=[PackWeights(), Tile(), Skip()]).derived(task("matmul", m=16, n=16, k=16))
    assert [la.buffer for la in ahead.program.layouts] == ["B"]
    (within, *_) = SketchSpace(rules=[PackOperand(), Tile(), Skip()]).derived(task("matmul", m=16, n=16, k=16))
    assert [copy for copy, _ in within.packed] == ["B_local"] and not within.program.layouts


def test_convolutions_are_also_computed_in_vectors_of_channels() -> None:
    found = {s.name: s for s in SketchSpace().derived(task("conv2d", ci=16, co=32, h=14, w=14))}
    assert loops(found["pack-fuse1"], "Y")[-1] == "c_3" and loops(found["tile"], "Y")[-1] == "w_3"


@pytest.mark.parametrize("operator", operators())
def test_every_operator_has_a_few_sketches(operator: str) -> None:
    found = SketchSpace().derived(Task(sl.workload(operator), TARGET))
    assert 1 <= len(found) < 10


def test_stages_are_named_by_their_place() -> None:
    found = SketchSpace(rules=PAPER).space(task("conv2d", ci=4, co=6, h=8, w=8, k=3, padding=1))
    names = [s.name for s in found.sketches if s.name.startswith("tile")]
    assert names == ["tile", "tile/P@Y0", "tile/P@Y1", "tile/P@Y2", "tile/P@inline"]


# --- rules and options of users ---------------------------------------------------------------------------------------


class WholeRows(Rule):
    """Tiles with two levels."""

    def applies(self, state: State, block: str) -> Answer:
        return Answer.APPLY_AND_SKIP_REST if state.program.blocks[block].reduces else Answer.SKIP

    def apply(self, state: State, block: str) -> Iterator[State]:
        s, factors = Schedule(state.program), state.factors()
        (row, *_) = s.loops(block)
        s.split(row, factors(row, 12, 2))
        yield state.advance(s, "rows", knobs=factors.knobs)


def test_a_rule_of_the_user_is_applied() -> None:
    at = task("matmul", m=12, n=8, k=4)
    assert names(SketchSpace(rules=[WholeRows(), *DEFAULT_RULES]), at) == ["rows"]
    assert names(SketchSpace(more_rules=[WholeRows()]), at) == ["rows"]
    by_name = {"sketch": {"rules": ["spaces.sketch.rules:Tile", "spaces.sketch.rules:Skip"]}}
    found = SPACES.make(by_name).space(at)
    assert [s.name for s in found.sketches] == ["tile"]


def test_another_structure() -> None:
    at = task("matmul", m=12, n=8, k=4)
    (state,) = SketchSpace(rules=[Tile(), Skip()], structure="SRS", max_inner=4).derived(at)
    assert loops(state, "C") == ["i_0_j_0", "k", "i_1", "j_1"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"structure": "RS"}, "not a word of S"),
        ({"structure": "SR"}, "at least twice"),
        ({"max_inner": 0}, "max_inner = 0"),
        ({"rules": ["nowhere:Rule"]}, "rule 'nowhere:Rule'"),
        ({"rules": ["spaces.sketch.rules:Missing"]}, "has no 'Missing'"),
        (
            {"rules": ["spaces.sketch.state:State"]},
            "not a Rule; accepted: a class that extends spaces.sketch.rule.Rule",
        ),
        ({"rules": ["collections:OrderedDict"]}, "is the class OrderedDict of collections, which is not a Rule"),
        ({"rules": [3]}, "rule 3 is a int; accepted: Rule objects"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        SketchSpace(**options)  # type: ignore[arg-type]


def test_rules_that_leave_a_stage_alone_or_never_end() -> None:
    class Again(Skip):
        def apply(self, state: State, block: str) -> Iterator[State]:
            yield state

    at = task("matmul", m=8, n=8, k=8)
    with pytest.raises(SpaceError, match="no rule applies to stage 'C'"):
        SketchSpace(rules=[Inline()]).derived(at)
    with pytest.raises(SpaceError, match="a rule stays at one stage"):
        SketchSpace(rules=[Again()]).derived(at)


def test_run_time_sizes_are_refused() -> None:
    with pytest.raises(SpaceError, match="has run-time sizes \\(m\\)"):
        SketchSpace().derived(task("matmul", m="?", n=8, k=8))
