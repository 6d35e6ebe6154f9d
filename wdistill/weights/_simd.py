"""Lanes: several numbers side by side in one register, for compiled code with explicit vector operations.

A compiler vectorises loops only where it can prove that nothing changes: not maxima of floats, not several queries whose
arrays might overlap. Here a value of type `Lanes` is such a vector, 64 bytes unless converted, with the usual operators
(a single number is used for all lanes); the compiler splits it where the processor's registers are smaller. Nothing is
reordered, so lanes give the bits that single numbers give.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.extending import lower_builtin, models, overload, register_model, type_callable

from wdistill.weights import _elementary

intrinsic: Any = extending.intrinsic

BYTES = 64
INT32 = ir.IntType(32)
ARITHMETIC = {  # of floats, of whole numbers
    operator.add: ("fadd", "add"),
    operator.sub: ("fsub", "sub"),
    operator.mul: ("fmul", "mul"),
    operator.truediv: ("fdiv", ""),
    operator.and_: ("", "and_"),
    operator.or_: ("", "or_"),
    operator.lshift: ("", "shl"),
    operator.rshift: ("", "ashr"),
}
COMPARISONS = {operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=", operator.eq: "=="}
TWIN: dict[Any, Any] = {
    types.float32: types.int32,
    types.float64: types.int64,
    types.int32: types.float32,
    types.int64: types.float64,
}


class Lanes(types.Type):
    """The type of `count` numbers of one kind, or of as many truths."""

    def __init__(self, scalar: Any, count: int) -> None:
        self.scalar, self.count = scalar, count
        super().__init__(f"Lanes({scalar}, {count})")

    @property
    def real(self) -> bool:
        return isinstance(self.scalar, types.Float)

    @property
    def vector(self) -> ir.VectorType:
        sizes = {types.float32: ir.FloatType(), types.float64: ir.DoubleType(), types.boolean: ir.IntType(1)}
        return ir.VectorType(sizes.get(self.scalar) or ir.IntType(self.scalar.bitwidth), self.count)

    @property
    def suffix(self) -> str:
        return f"v{self.count}{'f' if self.real else 'i'}{self.scalar.bitwidth}"


@register_model(Lanes)
class LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: Lanes) -> None:
        super().__init__(manager, lanes, lanes.vector)


def lanes_of(scalar: Any) -> Lanes:
    return Lanes(scalar, 8 * BYTES // scalar.bitwidth)


def spread_out(builder: Any, value: Any, vector: ir.VectorType) -> Any:
    """One number in every lane."""
    nothing = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(INT32, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(INT32, vector.count), None))


def fitted(context: Any, builder: Any, value: Any, source: Any, wanted: Lanes) -> Any:
    """Lanes as they are; one number, converted, in every lane."""
    if isinstance(source, Lanes):
        return value
    return spread_out(builder, context.cast(builder, value, source, wanted.scalar), wanted.vector)


def _operator(function: Callable[..., Any], names: tuple[str, str] | None, sign: str) -> None:
    @type_callable(function)
    def typed(context):
        def typer(a, b):
            wide = a if isinstance(a, Lanes) else b
            if isinstance(wide, Lanes):
                return wide if names else Lanes(types.boolean, wide.count)
            return None

        return typer

    def emit(context, builder, signature, values):
        wide = next(kind for kind in signature.args if isinstance(kind, Lanes))
        a, b = (fitted(context, builder, value, source, wide) for value, source in zip(values, signature.args, strict=True))
        if names:
            return getattr(builder, names[0] if wide.real else names[1])(a, b)
        return builder.fcmp_ordered(sign, a, b) if wide.real else builder.icmp_signed(sign, a, b)

    for pair in ((Lanes, Lanes), (Lanes, types.Number), (types.Number, Lanes)):
        lower_builtin(function, *pair)(emit)


for _function, _names in ARITHMETIC.items():
    _operator(_function, _names, "")
for _function, _sign in COMPARISONS.items():
    _operator(_function, None, _sign)


@type_callable(operator.neg)
def _negative_type(context):
    return lambda a: a if isinstance(a, Lanes) and a.real else None


@lower_builtin(operator.neg, Lanes)
def _negative(context, builder, signature, values):
    return builder.fneg(values[0])


def _address(context: Any, builder: Any, array_type: Any, array: Any, start: Any, target: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [start]), target.as_pointer())


@intrinsic
def zeros(typing, array):
    """Lanes of zeros, of the array's numbers."""
    lanes = lanes_of(array.dtype)
    return lanes(array), lambda context, builder, signature, values: ir.Constant(lanes.vector, None)


@intrinsic
def everywhere(typing, number):
    """One number in every lane."""
    lanes = lanes_of(number)
    return lanes(number), lambda context, builder, signature, values: spread_out(builder, values[0], lanes.vector)


@intrinsic
def spread(typing, array, place):
    """One entry of a contiguous vector in every lane."""
    lanes = lanes_of(array.dtype)

    def emit(context, builder, signature, values):
        pointer = _address(context, builder, array, values[0], values[1], lanes.vector.element)
        return spread_out(builder, builder.load(pointer), lanes.vector)

    return lanes(array, types.int64), emit


@intrinsic
def load(typing, array, start):
    """The entries of a contiguous vector from `start` on; they must all be there."""
    lanes = lanes_of(array.dtype)

    def emit(context, builder, signature, values):
        loaded = builder.load(_address(context, builder, array, values[0], values[1], lanes.vector))
        loaded.align = array.dtype.bitwidth // 8
        return loaded

    return lanes(array, types.int64), emit


@intrinsic
def load_some(typing, array, start, count, other):
    """The `count` entries from `start` on; `other` in the lanes beyond."""
    lanes = lanes_of(array.dtype)

    def emit(context, builder, signature, values):
        pointer = _address(context, builder, array, values[0], values[1], lanes.vector)
        numbers = ir.VectorType(ir.IntType(64), lanes.count)
        there = ir.Constant(numbers, list(range(lanes.count)))
        mask = builder.icmp_signed("<", there, spread_out(builder, values[2], numbers))
        beyond = fitted(context, builder, values[3], other, lanes)
        kind = ir.FunctionType(lanes.vector, [pointer.type, INT32, mask.type, lanes.vector])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.load.{lanes.suffix}.p0")
        return builder.call(function, [pointer, INT32(array.dtype.bitwidth // 8), mask, beyond])

    return lanes(array, types.int64, types.int64, other), emit


@intrinsic
def store(typing, array, start, lanes):
    """Write lanes into a contiguous vector from `start` on; there must be room for all."""

    def emit(context, builder, signature, values):
        written = builder.store(values[2], _address(context, builder, array, values[0], values[1], lanes.vector))
        written.align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.none(array, types.int64, lanes), emit


@intrinsic
def pack(typing, array, start, lanes, mask):
    """Write those lanes for which the mask holds, close together, into a contiguous vector from `start` on."""

    def emit(context, builder, signature, values):
        pointer = _address(context, builder, array, values[0], values[1], lanes.vector.element)
        kind = ir.FunctionType(ir.VoidType(), [lanes.vector, pointer.type, mask.vector])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.compressstore.{lanes.suffix}")
        builder.call(function, [values[2], pointer, values[3]])
        return context.get_dummy_value()

    return types.none(array, types.int64, lanes, mask), emit


@intrinsic
def numbered(typing, array):
    """0, 1, 2 … in as many lanes as hold the array's numbers."""
    lanes = lanes_of(array.dtype)
    numbers = Lanes(types.int64, lanes.count)
    constant = ir.Constant(numbers.vector, list(range(lanes.count)))
    return numbers(array), lambda context, builder, signature, values: constant


@intrinsic
def expect(typing, array, start):
    """Prefetch the entries at `start`, which may be beyond the end; nothing else happens."""

    def emit(context, builder, signature, values):
        pointer = _address(context, builder, array, values[0], values[1], ir.IntType(8))
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, INT32, INT32, INT32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, INT32(0), INT32(3), INT32(1)])
        return context.get_dummy_value()

    return types.none(array, types.int64), emit


@intrinsic
def choose(typing, mask, a, b):
    """a where the mask holds, else b."""
    wide = a if isinstance(a, Lanes) else b

    def emit(context, builder, signature, values):
        pair = (fitted(context, builder, value, source, wide) for value, source in zip(values[1:], (a, b), strict=True))
        return builder.select(values[0], *pair)

    return wide(mask, a, b), emit


def _extreme(sign: str) -> Any:
    def typed(typing, a, b):
        def emit(context, builder, signature, values):
            left, right = values[0], fitted(context, builder, values[1], b, a)
            return builder.select(builder.fcmp_ordered(sign, left, right), left, right)

        return a(a, b), emit

    return intrinsic(typed)


larger, smaller = _extreme(">"), _extreme("<")  # of floats; b where one is NaN


@intrinsic
def root(typing, lanes):
    """The square roots of the lanes' floats."""

    def emit(context, builder, signature, values):
        kind = ir.FunctionType(lanes.vector, [lanes.vector])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.sqrt.{lanes.suffix}")
        return builder.call(function, [values[0]])

    return lanes(lanes), emit


def _folded(builder: Any, vector: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """All lanes combined into one number, halves with halves."""
    width = vector.type.count // 2
    while width:
        places = ir.Constant(ir.VectorType(INT32, width), list(range(width)))
        others = ir.Constant(ir.VectorType(INT32, width), list(range(width, 2 * width)))
        halves = (builder.shuffle_vector(vector, vector, which) for which in (places, others))
        vector, width = combine(*halves), width // 2
    return builder.extract_element(vector, INT32(0))


@intrinsic
def largest(typing, lanes):
    """The largest of the lanes' floats."""

    def emit(context, builder, signature, values):
        return _folded(builder, values[0], lambda a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))

    return lanes.scalar(lanes), emit


@intrinsic
def total(typing, lanes):
    """The sum of all lanes."""

    def emit(context, builder, signature, values):
        return _folded(builder, values[0], builder.fadd if lanes.real else builder.add)

    return lanes.scalar(lanes), emit


def _counted(builder: Any, mask: Any) -> Any:
    return builder.zext(builder.bitcast(mask, ir.IntType(mask.type.count)), ir.IntType(64))


@intrinsic
def many(typing, mask):
    """In how many lanes the mask holds."""
    return types.int64(mask), lambda context, builder, signature, values: builder.ctpop(_counted(builder, values[0]))


@intrinsic
def foremost(typing, mask):
    """The first lane in which the mask holds; there must be one."""

    def emit(context, builder, signature, values):
        return builder.cttz(_counted(builder, values[0]), ir.Constant(ir.IntType(1), 0))

    return types.int64(mask), emit


@intrinsic
def _twin(typing, lanes):
    """The same bits as whole numbers, or as floats."""
    other = Lanes(TWIN[lanes.scalar], lanes.count)
    return other(lanes), lambda context, builder, signature, values: builder.bitcast(values[0], other.vector)


def same_bits(x: Any, kind: Any) -> Any: ...


@overload(same_bits)
def _same_bits(x, kind):
    if isinstance(x, Lanes):
        return lambda x, kind: _twin(x)
    source, wanted = getattr(np, x.name), getattr(np, TWIN[x].name)
    return lambda x, kind: source(x).view(wanted)


def _conversion(scalar: Any, number: Any) -> Any:
    """A function that converts lanes, and single numbers, to one kind of number."""

    @intrinsic
    def convert(typing, lanes):
        wanted = Lanes(scalar, lanes.count)

        def emit(context, builder, signature, values):
            if lanes.scalar == scalar:
                return values[0]
            if lanes.real and wanted.real:
                return (builder.fpext if scalar == types.float64 else builder.fptrunc)(values[0], wanted.vector)
            return (builder.fptosi if lanes.real else builder.sitofp)(values[0], wanted.vector)

        return wanted(lanes), emit

    def function(x: Any) -> Any: ...

    @overload(function)
    def chosen(x):
        return (lambda x: convert(x)) if isinstance(x, Lanes) else (lambda x: number(x))

    return function


f32, f64 = _conversion(types.float32, np.float32), _conversion(types.float64, np.float64)
i32, i64 = _conversion(types.int32, np.int32), _conversion(types.int64, np.int64)


def maximum(a: Any, b: Any) -> Any: ...


@overload(maximum)
def _maximum(a, b):
    return (lambda a, b: larger(a, b)) if isinstance(a, Lanes) else (lambda a, b: max(a, b))


def compilable(function: Callable[[Any], Any]) -> Any:
    """A function of `_elementary`, with the names above in place of NumPy's."""
    assert isinstance(function, FunctionType)
    names = {"f32": f32, "f64": f64, "i32": i32, "i64": i64, "maximum": maximum, "same_bits": same_bits}
    return FunctionType(function.__code__, {**vars(_elementary), **names}, function.__name__)


def exp(x: Any) -> Any: ...


def log(x: Any) -> Any: ...


@overload(exp)
def _exp(x):
    scalar = x.scalar if isinstance(x, Lanes) else x
    return compilable(_elementary.exp32 if scalar == types.float32 else _elementary.exp64)


@overload(log)
def _log(x):
    scalar = x.scalar if isinstance(x, Lanes) else x
    return compilable(_elementary.log32 if scalar == types.float32 else _elementary.log64)
