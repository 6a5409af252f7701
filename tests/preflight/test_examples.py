"""The examples compile for every type with the real compiler, and their memory adds up."""

import math

import pytest
import tensorflow as tf
from conftest import EXAMPLES, ROWS

from keras_tpu_kit.preflight.memory import memory_split
from keras_tpu_kit.tpu_types import tpu_type

TYPES = ("v2-8", "v3-8", "v4-8", "v5e-8", "v6e-8")


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("tpu", TYPES)
def test_an_example_compiles_fits_and_adds_up(example, tpu, examine):
    examination = examine(example).on(tpu_type(tpu))

    step = examination.compiled(ROWS)

    assert step.tpu == tpu
    assert step.total_bytes < step.available_bytes
    assert step.flops > 0 and step.bytes_accessed > 0 and step.compile_seconds > 0
    # The compiler's own total of the arguments is the sum of what each was said to take.
    assert sum(each.padded_bytes for each in step.arguments) == step.argument_bytes
    model = examination.model
    for role, variables in (
        # A seed that nothing draws from, as an LSTM without dropout has, is no argument.
        ("weights", [v for v in model.variables if not _is_idle_seed(v, step)]),
        ("optimizer", model.optimizer.variables),
    ):
        told = sorted((each.shape, each.num_bytes) for each in step.arguments if each.role == role)
        real = sorted(
            (tuple(v.shape), math.prod(v.shape) * tf.as_dtype(v.dtype).size) for v in variables
        )
        unused = [each for each in real if each not in told]
        assert [each for each in told if each not in real] == []
        assert unused == [], f"{role} that the step does not read: {unused}"
        assert step.role_bytes(role, padded=False) == sum(size for _, size in real)
        assert step.role_bytes(role) >= step.role_bytes(role, padded=False)
    split = memory_split(step)
    assert split.total == step.total_bytes
    assert split.weights + split.optimizer == sum(
        each.padded_bytes for each in step.arguments if each.role in ("weights", "optimizer")
    )


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_test_step_of_an_example_lowers(example, examine):
    examine(example).check_test_step(ROWS)


def _is_idle_seed(variable, step):
    """Whether a variable is a seed generator's state, and the step has no argument like it."""
    shapes = {each.shape for each in step.arguments if each.role == "weights"}
    return variable.path.endswith("seed_generator_state") and tuple(variable.shape) not in shapes
