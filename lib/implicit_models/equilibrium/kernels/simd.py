"""Vector registers inside numba kernels: a numba type for <lanes x float> and the few operations that kernels need.

Numba's own vectoriser spills the accumulators of a blocked matrix product to memory; values of this type stay in
registers. LLVM splits a vector that is wider than the machine's registers, so that every kernel runs on every CPU.
"""

from __future__ import annotations

import operator

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model


def _register_bytes() -> int:
    features = llvmlite.binding.get_host_cpu_features()
    return 64 if features.get("avx512f") else 32 if features.get("avx") else 16


VECTOR_BYTES = _register_bytes()
ROWS = 4  # rows of the matrix that `multiply_rows` keeps in registers at once


class VectorType(types.Type):
    """`lanes` floating-point numbers in one register."""

    def __init__(self, dtype):
        self.dtype, self.lanes = dtype, VECTOR_BYTES * 8 // dtype.bitwidth
        super().__init__(name=f"Vector({dtype}, {self.lanes})")


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        element = ir.FloatType() if fe_type.dtype.bitwidth == 32 else ir.DoubleType()
        super().__init__(dmm, fe_type, ir.VectorType(element, fe_type.lanes))


def _load(builder, vector_type, pointer):
    value = builder.load(builder.bitcast(pointer, vector_type.as_pointer()))
    value.align = _alignment(vector_type)
    return value


def _alignment(vector_type) -> int:
    return 4 if isinstance(vector_type.element, ir.FloatType) else 8


def _store(builder, value, pointer):
    builder.store(value, builder.bitcast(pointer, value.type.as_pointer())).align = _alignment(value.type)


def _spread(builder, vector_type, scalar):
    single = builder.insert_element(ir.Constant(vector_type, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(
        single,
        ir.Constant(vector_type, ir.Undefined),
        ir.Constant(ir.VectorType(ir.IntType(32), vector_type.count), [0] * vector_type.count),
    )


def _call(builder, name, args):
    """Call LLVM's own vector function `name` (fabs, fmuladd, ...)."""
    vector = args[0].type
    suffix = f"v{vector.count}f{32 if isinstance(vector.element, ir.FloatType) else 64}"
    function_type = ir.FunctionType(vector, [vector] * len(args))
    return builder.call(cgutils.get_or_insert_function(builder.module, function_type, f"llvm.{name}.{suffix}"), args)


@intrinsic
def address(typingctx, array):
    """Pointer to the first element of an array. Kernels hold pointers: numba counts references to arrays,
    atomically."""

    def codegen(context, builder, signature, args):
        return cgutils.create_struct_proxy(array)(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), codegen


@intrinsic
def advance(typingctx, pointer, count):
    """Pointer to the element `count` further on."""

    def codegen(context, builder, signature, args):
        return builder.gep(args[0], [args[1]])

    return pointer(pointer, types.intp), codegen


@intrinsic
def lanes(typingctx, pointer):
    """Numbers in one register, for the element type that `pointer` points to."""
    count = VectorType(pointer.dtype).lanes

    def codegen(context, builder, signature, args):
        return context.get_constant(types.intp, count)

    return types.intp(pointer), codegen


@intrinsic
def load(typingctx, pointer, index):
    """The vector that starts at pointer[index]."""
    vector = VectorType(pointer.dtype)

    def codegen(context, builder, signature, args):
        return _load(builder, context.get_value_type(vector), builder.gep(args[0], [args[1]]))

    return vector(pointer, types.intp), codegen


@intrinsic
def store(typingctx, pointer, index, vector):
    """pointer[index : index + lanes] = vector."""

    def codegen(context, builder, signature, args):
        _store(builder, args[2], builder.gep(args[0], [args[1]]))
        return context.get_dummy_value()

    return types.void(pointer, types.intp, vector), codegen


@intrinsic
def spread(typingctx, pointer, value):
    """The scalar `value` in every lane of a vector of the element type that `pointer` points to."""
    vector = VectorType(pointer.dtype)

    def codegen(context, builder, signature, args):
        return _spread(builder, context.get_value_type(vector), args[1])

    return vector(pointer, pointer.dtype), codegen


def _elementwise(name):
    @intrinsic
    def operation(typingctx, a, b):
        def codegen(context, builder, signature, args):
            return getattr(builder, name)(*args)

        return a(a, b), codegen

    return operation


_add, _subtract, _multiply, _divide = (_elementwise(name) for name in ("fadd", "fsub", "fmul", "fdiv"))


def _overload(python_operator, operation):
    @overload(python_operator)
    def typed(a, b):
        if isinstance(a, VectorType) and isinstance(b, VectorType):
            return lambda a, b: operation(a, b)


for _python_operator, _operation in (
    (operator.add, _add),
    (operator.sub, _subtract),
    (operator.mul, _multiply),
    (operator.truediv, _divide),
):
    _overload(_python_operator, _operation)


@intrinsic
def multiply_add(typingctx, a, b, c):
    """a * b + c, fused where the CPU can."""

    def codegen(context, builder, signature, args):
        return _call(builder, "fmuladd", args)

    return a(a, b, c), codegen


@intrinsic
def absolute(typingctx, a):
    """|a|."""

    def codegen(context, builder, signature, args):
        return _call(builder, "fabs", args)

    return a(a), codegen


@intrinsic
def maximum(typingctx, a, b):
    """a where a > b, else b (so that a NaN in b is kept)."""

    def codegen(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return a(a, b), codegen


@intrinsic
def where_positive(typingctx, condition, a, b):
    """a where condition > 0, else b (also where the condition is NaN)."""

    def codegen(context, builder, signature, args):
        zero = ir.Constant(args[0].type, [0.0] * args[0].type.count)
        return builder.select(builder.fcmp_ordered(">", args[0], zero), args[1], args[2])

    return a(condition, a, b), codegen


@intrinsic
def any_positive(typingctx, condition):
    """Whether some lane is > 0."""

    def codegen(context, builder, signature, args):
        count = args[0].type.count
        bits = builder.fcmp_ordered(">", args[0], ir.Constant(args[0].type, [0.0] * count))
        packed = builder.bitcast(bits, ir.IntType(count))
        return builder.icmp_unsigned("!=", packed, ir.Constant(ir.IntType(count), 0))

    return types.boolean(condition), codegen


@intrinsic
def nearest_integer(typingctx, a):
    """The integer nearest to every lane, as a floating-point number."""

    def codegen(context, builder, signature, args):
        return _call(builder, "rint", args)

    return a(a), codegen


@intrinsic
def power_of_two(typingctx, k):
    """2^k for lanes that hold integers in the exponent's range."""

    def codegen(context, builder, signature, args):
        double = isinstance(args[0].type.element, ir.DoubleType)
        bits, fraction, bias = (64, 52, 1023) if double else (32, 23, 127)
        integers = ir.VectorType(ir.IntType(bits), args[0].type.count)

        def constant(value):
            return ir.Constant(integers, [value] * integers.count)

        exponent = builder.add(builder.fptosi(args[0], integers), constant(bias))
        return builder.bitcast(builder.shl(exponent, constant(fraction)), args[0].type)

    return k(k), codegen


@intrinsic(prefer_literal=True)
def multiply_rows(typingctx, panel, start, x, n, middle, bias, row, out, width):
    """out = bias[row : row + ROWS] + (ROWS rows of a matrix) @ x, the sums held in registers.

    x and bias hold one column of `width` vectors per state (feature-major); panel[start + ROWS k + r] is the entry of
    row r and column k. Columns are taken from `middle` to n - 1 and then from 0 to middle - 1, so that those
    which a Gauss-Seidel sweep has just written come last and their latency is hidden.
    """
    if not isinstance(width, types.IntegerLiteral):
        return None
    vectors, vector = width.literal_value, VectorType(x.dtype)

    def codegen(context, builder, signature, args):
        register = context.get_value_type(vector)
        panel_pointer = builder.gep(args[0], [args[1]])
        integer = ir.IntType(64)

        def constant(value):
            return ir.Constant(integer, value)

        def column(pointer, state, w):
            return builder.gep(
                pointer, [builder.add(builder.mul(state, constant(vectors * vector.lanes)), constant(w * vector.lanes))]
            )

        sums = [
            _load(builder, register, column(args[5], builder.add(args[6], constant(r)), w))
            for r in range(ROWS)
            for w in range(vectors)
        ]

        def loop(first, last, sums):
            before = builder.block
            header, body, after = (builder.append_basic_block(name) for name in ("columns", "column", "columns_end"))
            builder.branch(header)
            builder.position_at_end(header)
            k = builder.phi(integer)
            carried = [builder.phi(register) for _ in sums]
            k.add_incoming(first, before)
            for phi, value in zip(carried, sums):
                phi.add_incoming(value, before)
            builder.cbranch(builder.icmp_signed("<", k, last), body, after)
            builder.position_at_end(body)
            states = [_load(builder, register, column(args[2], k, w)) for w in range(vectors)]
            entry = builder.mul(k, constant(ROWS))
            new = []
            for r in range(ROWS):
                scalar = builder.load(builder.gep(panel_pointer, [builder.add(entry, constant(r))]))
                coefficient = _spread(builder, register, scalar)
                new += [
                    _call(builder, "fmuladd", [coefficient, states[w], carried[r * vectors + w]])
                    for w in range(vectors)
                ]
            k.add_incoming(builder.add(k, constant(1)), builder.block)
            for phi, value in zip(carried, new):
                phi.add_incoming(value, builder.block)
            builder.branch(header)
            builder.position_at_end(after)
            return carried

        sums = loop(args[4], args[3], sums)
        sums = loop(constant(0), args[4], sums)
        for index, value in enumerate(sums):
            _store(builder, value, builder.gep(args[7], [constant(index * vector.lanes)]))
        return context.get_dummy_value()

    return types.void(panel, types.intp, x, types.intp, types.intp, bias, types.intp, out, width), codegen
