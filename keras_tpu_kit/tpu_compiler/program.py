"""What is in an XLA program: matrix products, dtypes, loops; and its fingerprint."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterator
from typing import Any

FLOAT64 = "f64"


@dataclasses.dataclass(frozen=True)
class MatrixProduct:
    """A matrix product or convolution, seen as `(rows x depth) @ (depth x columns)`.

    Args:
        name: Where it comes from, as TensorFlow names the op (`"model/dense/MatMul"`).
        kind: `"dot"` or `"convolution"`.
        batch: How many such products are made at once.
        rows: For a convolution: batch times output positions.
        depth: The axis that is summed over; for a convolution: window times input features.
        columns: For a convolution: output features.
        dtype: The compiler's name of the operands' dtype.
    """

    name: str
    kind: str
    batch: int
    rows: int
    depth: int
    columns: int
    dtype: str

    @property
    def flops(self) -> float:
        """Operations, a multiplication and an addition as two."""
        return 2.0 * self.batch * self.rows * self.depth * self.columns


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramFacts:
    """What is in a program before the compiler optimised it.

    Args:
        products: Its matrix products and convolutions; those in a loop's body once.
        num_instructions: Its instructions, without those whose result nobody needs.
        num_loops: Its loops.
        loop_products: How many of the products stand in a loop.
        float64_layers: Names of TensorFlow ops that compute in float64.
        dynamic_layers: Names of TensorFlow ops whose result has a length that depends on data.
    """

    products: tuple[MatrixProduct, ...]
    num_instructions: int
    num_loops: int
    loop_products: int
    float64_layers: tuple[str, ...]
    dynamic_layers: tuple[str, ...]


def read_program(serialized: bytes) -> Any:
    """Returns the program behind the bytes that TensorFlow's bridge gives."""
    from tensorflow.compiler.xla.service import hlo_pb2

    program = hlo_pb2.HloModuleProto()
    program.ParseFromString(serialized)
    return program


def program_facts(program: Any) -> ProgramFacts:
    """Returns what is in a program, as `read_program` returns it."""
    shapes = {
        instruction.id: instruction.shape
        for computation in program.computations
        for instruction in computation.instructions
    }
    in_loops = _computations_in_loops(program)
    products: list[MatrixProduct] = []
    float64: dict[str, None] = {}
    dynamic: dict[str, None] = {}
    count = loops = loop_products = 0
    for computation in program.computations:
        for instruction in _needed(computation):
            count += 1
            loops += instruction.opcode == "while"
            name = instruction.metadata.op_name
            if instruction.opcode in ("dot", "convolution"):
                products.append(_product(instruction, shapes))
                loop_products += computation.id in in_loops
            if _dtype(instruction.shape) == FLOAT64 and name:
                float64[name] = None
            if any(instruction.shape.is_dynamic_dimension) and name:
                dynamic[name] = None
    return ProgramFacts(
        products=tuple(products),
        num_instructions=count,
        num_loops=loops,
        loop_products=loop_products,
        float64_layers=tuple(float64),
        dynamic_layers=tuple(dynamic),
    )


def fingerprint(program: Any) -> str:
    """Returns a hash of what a program computes: the same for each trace of the same step.

    Names, numbers and source lines, which differ from trace to trace, are left out.
    """
    plain = type(program)()
    plain.CopyFrom(program)
    plain.name, plain.id, plain.entry_computation_name = "", 0, ""
    plain.ClearField("stack_frame_index")
    numbers: dict[int, int] = {}
    for computation in plain.computations:
        for each in (computation, *computation.instructions):
            numbers[each.id] = len(numbers)
    for computation in plain.computations:
        computation.name, computation.id = "", numbers[computation.id]
        computation.root_id = numbers[computation.root_id]
        for instruction in computation.instructions:
            instruction.name, instruction.id = "", numbers[instruction.id]
            instruction.ClearField("metadata")
            for field in ("operand_ids", "called_computation_ids", "control_predecessor_ids"):
                renumbered = [numbers[number] for number in getattr(instruction, field)]
                del getattr(instruction, field)[:]
                getattr(instruction, field).extend(renumbered)
        computation.program_shape.ClearField("parameter_names")
    plain.host_program_shape.ClearField("parameter_names")
    plain.entry_computation_id = numbers[plain.entry_computation_id]
    return hashlib.sha256(plain.SerializeToString(deterministic=True)).hexdigest()


def _needed(computation: Any) -> Iterator[Any]:
    """Yields the instructions that a computation's result needs; the compiler drops the others.

    TensorFlow lowers gradients that nobody uses, such as that of a first layer's input.
    """
    by_id = {instruction.id: instruction for instruction in computation.instructions}
    waiting, seen = [computation.root_id], set()
    while waiting:
        number = waiting.pop()
        if number not in seen:
            seen.add(number)
            waiting += [*by_id[number].operand_ids, *by_id[number].control_predecessor_ids]
    yield from (each for each in computation.instructions if each.id in seen)


def _computations_in_loops(program: Any) -> set[int]:
    """Returns the ids of computations that a loop calls, however deep."""
    calls = {
        computation.id: {
            called
            for instruction in computation.instructions
            for called in instruction.called_computation_ids
        }
        for computation in program.computations
    }
    waiting = [
        called
        for computation in program.computations
        for instruction in computation.instructions
        if instruction.opcode == "while"
        for called in instruction.called_computation_ids
    ]
    found: set[int] = set()
    while waiting:
        computation = waiting.pop()
        if computation not in found:
            found.add(computation)
            waiting.extend(calls[computation])
    return found


def _product(instruction: Any, shapes: dict[int, Any]) -> MatrixProduct:
    left, right = (shapes[number].dimensions for number in instruction.operand_ids)
    dtype = _dtype(shapes[instruction.operand_ids[0]])
    if instruction.opcode == "dot":
        axes = instruction.dot_dimension_numbers
        batch = math.prod(left[axis] for axis in axes.lhs_batch_dimensions)
        depth = math.prod(left[axis] for axis in axes.lhs_contracting_dimensions)
        rows = math.prod(left) // (batch * depth)
        columns = math.prod(right) // (batch * depth)
    else:
        axes = instruction.convolution_dimension_numbers
        columns = instruction.shape.dimensions[axes.output_feature_dimension]
        batch = max(1, instruction.feature_group_count, instruction.batch_group_count)
        rows = math.prod(instruction.shape.dimensions) // columns
        depth = math.prod(right) // columns
        columns //= batch
    return MatrixProduct(
        instruction.metadata.op_name, instruction.opcode, batch, rows, depth, columns, dtype
    )


def _dtype(shape: Any) -> str:
    return str(
        type(shape)
        .DESCRIPTOR.fields_by_name["element_type"]
        .enum_type.values_by_number[shape.element_type]
        .name
    ).lower()
