"""Products of changes and weights as multiples of steps: what is passed on, and what is multiplied."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.ir.interpret import interpret
from searchlab.targets import parse
from searchlab.video.change_programs import PixelValue, packed_weight, pairs_program, pass_program, tile_pairs
from searchlab.video.product_formats import STEPPED, STEPS, in_steps


@given(st.integers(1, 4), st.sampled_from([1e-3, 1.0, 1e4]), st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_programs_of_steps_are_those_of_numpy(pairs: int, size: float, seed: int) -> None:
    """What is passed on is a change to 11 bits of the largest of its pixel, and products are those of numpy."""
    target = parse("x86-64-v3").with_threads(1)
    rng = np.random.default_rng(seed)
    inputs, outputs, taps, rows = 2 * pairs, 8, 3, 6
    value = PixelValue(inputs, ("x",), ("float32",), lambda x: x)
    now, seen = (rng.normal(0, size, (rows, inputs)).astype(np.float32) for _ in range(2))
    seen[2] = now[2]
    pixels = np.array([4, 2, 0, 0, 0, 0], np.int32)
    room = {"change": np.zeros((rows, inputs), np.int16), "step": np.zeros(rows, np.float32)}
    listed = {"pixels": pixels, "pixels_number": np.array([3], np.int32), "map0": now}
    limit = {"threshold": np.zeros(1, np.float32)}
    state = {"seen": seen.copy(), **room}
    made = interpret(pass_program(value, False, STEPPED), {**listed, **limit, **state}, {"rows": rows, "entries": rows})
    passed = made["change"] * made["step"][:, None].astype(float)
    wanted = (now.astype(float) - seen)[pixels[:3]]
    most = np.abs(wanted).max(axis=1, keepdims=True)
    assert (np.abs(passed[:3] - wanted) <= most * 0.51 / STEPS + 1e-6 * size).all()
    assert not passed[3:].any()
    np.testing.assert_allclose(made["seen"][pixels[:3]], now[pixels[:3]], rtol=0, atol=float(most.max()) / STEPS)

    weight = rng.normal(0, size, (outputs, inputs, taps)).astype(np.float32)
    weight[1] = 0
    whole, weight_step = in_steps(weight)
    np.testing.assert_allclose(whole * weight_step[:, None, None], weight, rtol=0, atol=0.51 * weight_step.max())
    program, group = pairs_program(inputs, outputs, target, STEPPED), tile_pairs(outputs, target)
    source = rng.integers(0, 3, (2, group)).astype(np.int32)
    place = np.array([rng.permutation(rows - 1)[:group] for _ in range(2)], np.int32)
    tap, before = np.array([2, 0], np.int32), rng.normal(0, 1, (rows, outputs)).astype(np.float32)
    sums = before.astype(float)
    for g in range(2):
        sums[place[g]] += passed[source[g]] @ (whole * weight_step[:, None, None].astype(float))[:, :, tap[g]].T
    packed = np.ascontiguousarray(packed_weight(whole, target, STEPPED))
    listed = {"number": np.array([2], np.int32), "source": source, "place": place, "tap": tap, "weight": packed}
    listed |= {"change": made["change"], "step": made["step"], "weight_step": weight_step, "sums": before.copy()}
    found = interpret(program, listed, {"rows": rows, "places": rows, "groups": 2, "taps": taps})
    np.testing.assert_allclose(found["sums"], sums, rtol=1e-4, atol=1e-4 * max(1.0, size**2))


def test_sums_of_steps_do_not_overflow() -> None:
    for inputs in (2, 512, 4096):
        whole, _ = in_steps(np.full((1, inputs, 1), -0.7, np.float32))
        assert abs(int(whole.astype(np.int64).sum())) * STEPS < 2**31 and np.abs(whole).max() >= 127
