"""`residual`: a graph that computes a frame becomes one that computes what changed since the frames before.

For a linear layer F, F(x) = F(r) + F(x - r) without the bias, for any reference r.  So a layer keeps r and F(r),
computes F on the difference, in which small changes are dropped, and adds.  Everything else (activations, pooling, sums
of branches) is computed on whole maps, which are exact functions of the kept sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from searchlab.errors import GraphError
from searchlab.graph import (
    Binding,
    GraphBuilder,
    GraphFunction,
    GraphModule,
    GraphOperator,
    GraphValue,
    OperatorCall,
    TensorType,
    TupleType,
    tensor,
    verify_graph,
)
from searchlab.graph.passes import fold_batch_norms, fold_constants, remove_dead, share_equal_calls
from searchlab.graph.passes.inlining import inline_functions
from searchlab.ir.expr import value_of
from searchlab.video.changes import weight_columns
from searchlab.video.product_formats import FLOAT, SUM
from searchlab.video.residual_options import ResidualOptions
from searchlab.video.residual_plan import ChangePoint, KeptValue, ResidualLayer, ResidualPlan

MAIN, FIRST, DENSE = "main", "first", "dense"
_CHANNELS = {"conv2d": 1, "conv_transpose2d": 1, "linear": -1, "dense": -1}  # linear layers, and the axis of channels
_ACTIVATIONS = ("relu", "clamp", "sigmoid", "tanh", "silu", "gelu")


def residual(module: GraphModule, options: ResidualOptions | None = None) -> ResidualPlan:
    """The residual form of a graph whose `main` computes one frame; `plan.module` is an ordinary graph."""
    chosen = options or ResidualOptions()
    module = prepared(module)
    main = module[MAIN]
    frame = main.parameters[0].annotation if len(main.parameters) == 1 else None
    if not isinstance(frame, TensorType) or frame.dtype != FLOAT or frame.shape is None:
        taken = ", ".join(f"{p.name}: {p.annotation}" for p in main.parameters)
        raise GraphError(f"a residual graph takes one frame, a tensor of {FLOAT} of known shape; main takes ({taken})")
    survey = _Survey.of(module, main, chosen)
    if not survey.layers:
        raise GraphError(
            f"main has no linear layer with constant weights: none of {', '.join(_CHANNELS)}; "
            "those of bytes take rule = 'propagated'"
        )
    held = replace(module, functions={DENSE: replace(main, name=DENSE)})
    held = _First(held, main, survey).module()
    rewritten = _Rewritten(held, main, survey, chosen)
    plan = ResidualPlan(
        rewritten.module(),
        chosen,
        tuple(survey.layers.values()),
        tuple(survey.points.values()),
        tuple(survey.kept),
        survey.thresholded,
        tuple(rewritten.skipping),
    )
    verify_graph(plan.module)
    return plan


def prepared(module: GraphModule) -> GraphModule:
    """A graph whose layers can be found: one function, with batch norms in the weights."""
    for step in (inline_functions, fold_constants, fold_batch_norms, share_equal_calls, remove_dead):
        module = step(module)
    return module


@dataclass
class _Survey:
    """The layers of a function and what they keep, found before anything is written."""

    layers: dict[str, ResidualLayer] = field(default_factory=dict)  # by the names of their results
    points: dict[tuple[str, int], ChangePoint] = field(default_factory=dict)  # by value and axis of channels
    activations: dict[str, str] = field(default_factory=dict)  # by operands: activations that drop changes of these
    kept: list[KeptValue] = field(default_factory=list)
    thresholded: dict[str, int] = field(
        default_factory=dict
    )  # names of thresholds, and the places of what they are for

    @staticmethod
    def of(module: GraphModule, main: GraphFunction, options: ResidualOptions) -> _Survey:
        """What is kept if a function becomes residual."""
        found = _Survey()
        truncated = options.rule == "truncated"
        frames = {p.name for p in main.parameters}
        for b in main.bindings:
            operator = _operator(b)
            if operator is None:
                continue
            if operator.name in _CHANNELS and _is_layer(module, b, main, options.rule):
                # With truncated sums activations drop changes, so only layers that read the frame do as well.
                found._add_layer(module, b, operator, not truncated or b.call.names()[0] in frames)
            elif truncated and operator.name in _ACTIVATIONS and _is_float(b):
                found._add_activation(b)
        return found

    def _add_layer(self, module: GraphModule, b: Binding, operator: GraphOperator, has_threshold: bool) -> None:
        given, weight, *bias = b.call.names()
        key = (given, _CHANNELS[operator.name])
        if key not in self.points:
            self.points[key] = ChangePoint(b.name, self._keep("input", given), key[1])
            self.thresholded |= {b.name: self.points[key].slot} if has_threshold else {}
        at = list(self.points).index(key)
        arrays = [module.constants[name].array for name in (weight, *bias)]
        self.layers[b.name] = ResidualLayer(b.name, operator, at, self._keep("sum", b.name), *arrays)

    def _add_activation(self, b: Binding) -> None:
        (given,) = b.call.names()
        if given not in self.activations:  # else another activation drops its changes, and both read what is left
            self.activations[given] = b.name
            self.thresholded[b.name] = self._keep("activation", given)

    def _keep(self, role: str, of: str) -> int:
        self.kept.append(KeptValue(role, of))
        return len(self.kept) - 1


def _operator(b: Binding) -> GraphOperator | None:
    return b.call.operator if isinstance(b.call, OperatorCall) else None


def _is_float(b: Binding) -> bool:
    return isinstance(b.annotation, TensorType) and b.annotation.dtype == FLOAT and len(b.call.names()) == 1


def _is_layer(module: GraphModule, b: Binding, main: GraphFunction, rule: str) -> bool:
    """Whether a layer multiplies something that varies by weights that do not.

    Layers of bytes are computed of what was seen, so what is not passed on must stay unseen.
    """
    assert isinstance(b.call, OperatorCall)
    given, *weights = b.call.args
    constant = all(isinstance(w, str) and w in module.constants for w in weights)
    accepted = (FLOAT, SUM) if rule == "propagated" else (FLOAT,)
    varies = given in main.annotations and isinstance(b.annotation, TensorType)
    return constant and varies and getattr(b.annotation, "dtype", None) in accepted


class _First:
    """The function that computes everything, and returns what is kept with its output."""

    def __init__(self, module: GraphModule, main: GraphFunction, survey: _Survey) -> None:
        self.main, self.survey = main, survey
        self.b = GraphBuilder(FIRST, module, main.ranges)

    def module(self) -> GraphModule:
        (frame,) = self.main.parameters
        self.b.input(frame.name, frame.annotation)
        for binding in self.main.bindings:
            self.b.emit(binding.call, binding.name)
        state = self.b.tuple(*(self.b.known(kept.of) for kept in self.survey.kept), name=_free(self.main, "state"))
        return self.b.build(self.b.known(self.main.result), state)


def _free(main: GraphFunction, name: str) -> str:
    while name in main.annotations:
        name += "_"
    return name


class _Rewritten:
    """The function that computes changes; results of calls keep their names, so other calls stay as they are."""

    def __init__(self, module: GraphModule, main: GraphFunction, survey: _Survey, options: ResidualOptions) -> None:
        self.main, self.survey, self.options = main, survey, options
        self.b = GraphBuilder(MAIN, module, main.ranges)
        self.counts: list[GraphValue] = []
        self.computed: list[GraphValue] = []
        self.skipping: list[str] = []
        self.changes: dict[int, GraphValue] = {}  # by change point
        self.active: dict[int, GraphValue] = {}  # by change point: which pixels changed
        self.pixels: dict[int, GraphValue] = {}  # by change point: changes with channels last
        self.after: dict[int, GraphValue] = {}  # by place in the state

    def module(self) -> GraphModule:
        """The module with the function."""
        self._inputs()
        for binding in self.main.bindings:
            if binding.name in self.survey.layers:
                self._layer(binding, self.survey.layers[binding.name])
            else:
                self._other(binding)
        counts = self.b.tuple(*self.counts, *self.computed, name=self._name("counts"))
        state = self.b.tuple(
            *(self.after[slot] for slot in range(len(self.survey.kept))), name=self._name("next_state")
        )
        return self.b.build(self.b.known(self.main.result), counts, state)

    def _inputs(self) -> None:
        (frame,) = self.main.parameters
        self.b.input(frame.name, frame.annotation)
        count = len(self.survey.thresholded)
        self.thresholds = self.b.input(self._name("thresholds"), tensor((count,), FLOAT))
        annotations = tuple(self.main.annotations[kept.of] for kept in self.survey.kept)
        self.state = self.b.input(self._name("state"), TupleType(annotations))

    def _name(self, base: str) -> str:
        """A name that no value has, neither here nor in the function that is rewritten."""
        name = base
        while name in self.main.annotations or self.b.is_taken(name):
            name += "_"
        return name

    def _op(self, base: str, operator: str, *args: GraphValue | float, **attributes: object) -> GraphValue:
        return self.b.op(operator, *args, name=self._name(base), **attributes)

    def _before(self, slot: int) -> GraphValue:
        kept = self.survey.kept[slot]
        return self.b.item(self.state, slot, name=self._name(f"{kept.of}_before"))

    def _passed(self, base: str, change: GraphValue, axis: int | None) -> GraphValue | None:
        """Where a change is passed on; None if it has no threshold."""
        if base not in self.survey.thresholded:
            return None
        at = list(self.survey.thresholded).index(base)
        limit = self._op(f"{base}_threshold", "slice", self.thresholds, axis=0, start=at, stop=at + 1)
        size = self._op(f"{base}_size", "abs", change)
        if self.options.granularity == "pixel" and axis == 1:
            size = self._op(f"{base}_largest", "max", size, axes=(1,), keepdims=True)
        return self._op(f"{base}_passed", "gt", size, limit)

    def _as_float(self, base: str, value: GraphValue) -> GraphValue:
        is_float = getattr(value.annotation, "dtype", FLOAT) == FLOAT
        return value if is_float else self._op(f"{base}_number", "cast", value, dtype=FLOAT)

    def _change(self, key: tuple[str, int], point: ChangePoint) -> GraphValue:
        """The change of an input of layers, computed once for all that read it."""
        number = list(self.survey.points).index(key)
        if number in self.changes:
            return self.changes[number]
        now, before = self.b.known(key[0]), self._before(point.slot)
        floats = (self._as_float(point.name, value) for value in (now, before))
        change = self._op(f"{point.name}_difference", "sub", *floats)
        passed = self._passed(point.name, change, point.axis)
        self.after[point.slot] = now
        if passed is not None:
            change = self._op(f"{point.name}_change", "where", passed, change, 0.0)
            if self.options.granularity == "pixel" and point.axis == 1:
                self.active[number] = passed
            if self.options.rule != "previous":
                self.after[point.slot] = self._op(f"{point.name}_seen", "where", passed, now, before)
        changed = self._op(f"{point.name}_changed", "ne", change, 0.0)
        rank = len(now.shape)
        others = tuple(a for a in range(rank) if a != point.axis % rank)
        ones = self._op(f"{point.name}_ones", "cast", changed, dtype=FLOAT)
        self.counts.append(self._op(f"{point.name}_count", "sum", ones, axes=others) if others else ones)
        self.changes[number] = change
        return change

    def _layer(self, b: Binding, layer: ResidualLayer) -> None:
        """The sums of a layer: those before, with the bias of the first frame, and the layer of the change.

        Differences of bytes are no bytes; of these it is the layer of what was seen, which gives the same integers.
        """
        key = (b.call.names()[0], _CHANNELS[layer.operator.name])
        change = self._change(key, self.survey.points[key])
        if getattr(b.annotation, "dtype", FLOAT) == SUM:
            seen, rest = self.after[self.survey.points[key].slot], map(self.b.known, b.call.names()[1:])
            self.after[layer.slot] = self.b.op(layer.operator, seen, *rest, name=b.name)
            return
        before = self._before(layer.slot)
        if self._skips(layer, change, before):
            made = _SKIPPING[layer.operator.name](self, b, layer, change, before)
            self.after[layer.slot] = self.b.item(made, 0, name=b.name)
            self.computed.append(self.b.item(made, 1, name=self._name(f"{b.name}_computed")))
            self.skipping.append(b.name)
            return
        weight = self.b.known(b.call.names()[1])
        product = self.b.op(layer.operator, change, weight, name=self._name(f"{b.name}_product"))
        self.after[layer.slot] = self.b.op("add", before, product, name=b.name)

    def _skips(self, layer: ResidualLayer, change: GraphValue, before: GraphValue) -> bool:
        if self.options.kernel != "skip" or layer.operator.name not in _SKIPPING:
            return False
        units = [value_of(e) for e in (before.shape[2:] if layer.operator.name == "conv2d" else change.shape[-1:])]
        known = [n for n in units if n is not None]
        return len(known) < len(units) or math.prod(known) > self.options.smallest

    def _other(self, b: Binding) -> None:
        """A call that stays as it is; an activation that drops changes reads the sums that it passes on."""
        given = b.call.names()
        call = b.call
        if b.call.callee in _ACTIVATIONS and given[0] in self.survey.activations:
            held = self._held(given[0], self.survey.activations[given[0]])
            call = call.with_operands(tuple(held.name if o == given[0] else o for o in call.operands()))
        self.b.emit(call, b.name)

    def _held(self, operand: str, activation: str) -> GraphValue:
        """The sums that activations of a value read: those now where their change is passed on, else those before."""
        slot = self.survey.thresholded[activation]
        if slot not in self.after:
            now, before = self.b.known(operand), self._before(slot)
            change = self._op(f"{activation}_difference", "sub", now, before)
            passed = self._passed(activation, change, 1 if len(now.shape) == 4 else None)
            assert passed is not None
            self.after[slot] = self._op(f"{activation}_held", "where", passed, now, before)
        return self.after[slot]

    def _conv2d(self, b: Binding, layer: ResidualLayer, change: GraphValue, before: GraphValue) -> GraphValue:
        """A convolution that skips pixels; it reads whole pixels, so channels come last."""
        active = self.active.get(layer.point)
        if active is None:
            size = self._op(f"{b.name}_absolute", "abs", change)
            active = self.active[layer.point] = self._op(f"{b.name}_active", "max", size, axes=(1,), keepdims=True)
        if layer.point not in self.pixels:
            self.pixels[layer.point] = self._op(f"{b.name}_pixels", "permute", change, axes=(0, 2, 3, 1))
        name = self._name(f"{b.call.names()[1]}_columns")
        columns = self.b.constant(name, weight_columns(layer.weight, layer.groups))
        return self.b.call_library(
            "video.conv2d_changes",
            *(self.pixels[layer.point], active, before, columns),
            out=(tensor(before.shape, FLOAT), tensor((1,), FLOAT)),
            name=self._name(f"{b.name}_sums"),
            kernel=layer.weight.shape[2:],
            limit=self.options.limit,
            **dict(layer.operator.attributes()),
        )

    def _linear(self, b: Binding, layer: ResidualLayer, change: GraphValue, before: GraphValue) -> GraphValue:
        array = layer.weight if layer.operator.name == "dense" else layer.weight.T
        weight = self.b.constant(self._name(f"{b.call.names()[1]}_rows"), array)
        outputs = (tensor(before.shape, FLOAT), tensor((1,), FLOAT))
        name = self._name(f"{b.name}_sums")
        return self.b.call_library("video.linear_changes", change, before, weight, out=outputs, name=name)


_SKIPPING = {"conv2d": _Rewritten._conv2d, "linear": _Rewritten._linear, "dense": _Rewritten._linear}
