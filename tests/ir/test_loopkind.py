"""Kinds of loops are a type whose members are their names."""

import json
from dataclasses import replace

import pytest

from searchlab.errors import IRError
from searchlab.ir import Builder, Loop, Program, from_json, index, knob, to_json
from searchlab.ir.expr import Var
from searchlab.ir.loopkind import LOOP_KINDS, THREAD_AXES, KindChoice, LoopKind
from searchlab.ir.stmt import Store
from searchlab.schedule import Schedule


def copied() -> Program:
    b = Builder("copied")
    x = b.input("X", (8, 9))
    return b.program(b.compute("Y", (8, 9), lambda i, j: x[i, j]))


def test_members_are_their_names() -> None:
    assert (*LOOP_KINDS, *THREAD_AXES) == tuple(LoopKind)
    assert LoopKind.SERIAL == "serial" and hash(LoopKind.SERIAL) == hash("serial")
    assert f"{LoopKind.THREAD_X}" == "threadIdx.x" and json.dumps([LoopKind.PARALLEL]) == '["parallel"]'


def test_what_kinds_say_of_their_iterations() -> None:
    assert {k for k in LoopKind if k.is_thread} == set(THREAD_AXES)
    assert {k for k in LoopKind if k.is_apart} == {"parallel", "blockIdx.x", "blockIdx.y", "blockIdx.z"}
    assert {k for k in LoopKind if k.is_virtual} == {"vthread.x", "vthread.y", "vthread.z"}


def test_a_loop_takes_the_name_of_a_kind() -> None:
    loop = Loop(Var("i"), index(4), Store("Y", (), Var("i")), "parallel")
    assert loop.kind is LoopKind.PARALLEL and loop.kinds == ("parallel",)
    with pytest.raises(IRError, match="loop 'i' has unknown kind 'sideways'; known: serial, parallel"):
        replace(loop, kind="sideways")


def test_a_choice_survives_json_and_becomes_a_kind() -> None:
    s = Schedule(copied())
    s.choose_kind("i", ["serial", "parallel"], knob("p"))
    s.annotate("i", "note", 3)
    program = s.program
    assert program.loops["i"].kinds == (LoopKind.SERIAL, LoopKind.PARALLEL)
    assert "for i in 8 @kind=p @kinds=serial|parallel @note=3:" in str(program)
    assert ["tuple", "kinds", "serial|parallel"] in json.loads(to_json(program))[5][5]
    assert from_json(to_json(program)) == program and from_json(to_json(program)).loops["i"].kinds[1].is_apart
    assert program.substitute({"p": 1}).loops["i"].kind is LoopKind.PARALLEL
    assert KindChoice.read("serial|unrolled") == KindChoice((LoopKind.SERIAL, LoopKind.UNROLLED))
