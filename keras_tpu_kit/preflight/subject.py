"""What is examined: how to make its model as one replica of the hardware would hold it."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
import pathlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import keras_tuner
import tensorflow as tf

from keras_tpu_kit.errors import Finding, PreflightError
from keras_tpu_kit.factory import ModelFactory
from keras_tpu_kit.factory.names import fresh_names
from keras_tpu_kit.factory.precision import policy_name
from keras_tpu_kit.plan import BatchPlan
from keras_tpu_kit.replication.preparation import build, is_built
from keras_tpu_kit.stock_training import TRACE_ERRORS
from keras_tpu_kit.targets import load_target
from keras_tpu_kit.topology import Topology
from keras_tpu_kit.tpu_compiler.lowering import trace_refusal

# Variables from this size on are given memory but no values: only their shapes count here, and
# a model that fills a TPU need not fit into this machine.
_UNFILLED_FROM_BYTES = 2**20


class Subject:
    """A model to be, on one replica.

    Args:
        what: A `ModelFactory`, its class, a function that returns a compiled model, the path of a
            `.keras` file, or `"module:name"` of one of the first three.
        topology: Where it is meant to train; `precision="auto"` answers for it.

    Raises:
        PreflightError: If `what` is nothing of these.
        KitError: If `"module:name"` names nothing.

    Example:

    >>> def get_compiled_model():
    ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    ...     model.compile("sgd", "mse")
    ...     return model
    >>> subject = Subject(get_compiled_model, Topology(accelerator="tpu"))
    >>> subject.name, subject.model().output_shape
    ('get_compiled_model', (None, 1))
    """

    def __init__(self, what: Any, topology: Topology) -> None:
        found = load_target(what) if isinstance(what, str) and ":" in what else what
        self.name = what if isinstance(what, str) else _name(found)
        self.topology = topology
        self.plan: BatchPlan | None = None
        self._path = None
        self._memory: dict[Any, tf.Tensor] = {}
        # The default strategy is one replica's: what each of many runs between all-reduces.
        one_replica = tf.distribute.get_strategy()
        if isinstance(found, (str, os.PathLike)):
            self._path = _existing_file(found)
            found = self._load
        if isinstance(found, type) and issubclass(found, ModelFactory):
            self.factory = found(one_replica)
        elif isinstance(found, ModelFactory):
            self.factory = copy.copy(found)
            self.factory._strategy = one_replica
        elif callable(found) and not isinstance(found, keras.Model):
            self.factory = ModelFactory.from_function(found, one_replica)
        else:
            raise PreflightError(_not_a_subject(found))

    def model(self, *, precision: str | None = None, optimizer: str | None = None) -> keras.Model:
        """Returns a new compiled model, whose large variables hold no values.

        Args:
            precision: A dtype policy to build it with in place of its own.
            optimizer: An optimizer to give it in place of its own, by name.
        """
        factory = copy.copy(self.factory)
        own = factory.precision and policy_name(factory.precision, self.topology)
        factory.precision = precision or own
        factory.plan = self.plan and _share_of_one(self.plan)
        # The same names in each run, or the answers of the one before would not be found again.
        with fresh_names(), tf.device("/cpu:0"), _unfilled_variables(self._memory):
            model = factory.create(keras_tuner.HyperParameters())
            if precision is not None and self._path is not None:
                model = _with_policy(model, precision)
            if optimizer is not None:
                model.optimizer = keras.optimizers.get(optimizer)
        return model

    def build_layers(self, model: keras.Model, batch: Any) -> None:
        """Makes what variables are missing of layers, which tell what the model is.

        Raises:
            StepRefusedError: If Keras or the user's code cannot.
        """
        if not is_built(model):
            self.build(model, batch)

    def build(self, model: keras.Model, batch: Any) -> None:
        """Makes what variables are missing: of layers, metrics and the optimizer.

        Raises:
            StepRefusedError: If Keras or the user's code cannot.
        """
        with tf.device("/cpu:0"), _unfilled_variables(self._memory):
            try:
                build(model, batch)
            except TRACE_ERRORS as error:
                raise trace_refusal(error, model) from error

    def data(self) -> tuple[Any, Any] | None:
        """Returns what the factory's own `data` gives, or `None` where it has no such hook."""
        if type(self.factory).data is ModelFactory.data:
            return None
        return self.factory.data()

    def _load(self) -> keras.Model:
        with warnings.catch_warnings():
            # The file of a model that was never trained holds no slots of its optimizer; only
            # their shapes count here.
            warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")
            return keras.saving.load_model(self._path)


def _share_of_one(plan: BatchPlan) -> BatchPlan:
    """Returns what a plan means to one replica: its batch, its rows, as many steps."""
    replicas = plan.topology.num_replicas
    return dataclasses.replace(
        plan,
        topology=dataclasses.replace(plan.topology, num_replicas=1, num_workers=1),
        num_samples=plan.num_samples // replicas,
        num_validation_samples=plan.num_validation_samples // replicas,
    )


@contextlib.contextmanager
def _unfilled_variables(shared: dict[Any, tf.Tensor]) -> Iterator[None]:
    """Leaves large variables that are made inside without values.

    Args:
        shared: Memory by shape and dtype. Variables that nobody reads may all lie in the same:
            weights, the optimizer's slots, and those of the next model.
    """

    def memory(shape: tf.TensorShape, dtype: tf.DType) -> tf.Tensor:
        key = (tuple(shape), dtype)
        if key not in shared:
            shared[key] = tf.raw_ops.Empty(shape=shape, dtype=dtype, init=False)
        return shared[key]

    def create(next_creator: Callable[..., Any], **how: Any) -> Any:
        initial = how.get("initial_value")
        if callable(initial):
            spec = _declared(initial)
            if spec is None:
                with tf.__internal__.FuncGraph("shape").as_default():
                    spec = tf.convert_to_tensor(initial())
            is_large = spec.shape.is_fully_defined() and (
                spec.shape.num_elements() * spec.dtype.size >= _UNFILLED_FROM_BYTES
            )
            if is_large:
                how["initial_value"] = lambda: memory(spec.shape, spec.dtype)
        return next_creator(**how)

    with tf.variable_creator_scope(create):
        yield


def _declared(initial: Callable[[], Any]) -> tf.TensorSpec | None:
    """Returns the shape and dtype of what a function of Keras's will return, if it tells.

    Keras hands TensorFlow a function that closes over its own variable, which knows both. To run
    it only to see them takes a third of the time of building a large model.
    """
    code = getattr(initial, "__code__", None)
    cells = getattr(initial, "__closure__", None) or ()
    names = code.co_freevars if code else ()
    owner = dict(zip(names, cells, strict=True)).get("self")
    variable = owner and owner.cell_contents
    if not isinstance(variable, keras.Variable):
        return None
    return tf.TensorSpec(variable.shape, variable.dtype)


def _with_policy(model: keras.Model, policy: str) -> keras.Model:
    """Returns a model read from a file anew, with another dtype policy in each layer."""

    def changed(config: Any) -> Any:
        if isinstance(config, dict):
            if config.get("class_name") == "DTypePolicy":
                return {**config, "config": {"name": policy}}
            return {key: changed(value) for key, value in config.items()}
        return [changed(each) for each in config] if isinstance(config, list) else config

    again = keras.saving.deserialize_keras_object(
        changed(keras.saving.serialize_keras_object(model))
    )
    if not again.compiled:
        again.compile_from_config(model.get_compile_config())
    return again


def _existing_file(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if text.endswith(".keras") and pathlib.Path(text).is_file():
        return text
    raise PreflightError(
        Finding(
            "preflight-no-file",
            "error",
            what=f"There is no model file {text!r}.",
            why="A saved model is a .keras file; a function or factory is named module:name.",
            fix="Pass the path of a .keras file, or module:name such as my_model:"
            "get_compiled_model.",
        )
    )


def _name(found: Any) -> str:
    return str(getattr(found, "__name__", None) or type(found).__name__)


def _not_a_subject(found: Any) -> Finding:
    is_model = isinstance(found, keras.Model)
    return Finding(
        "preflight-no-subject",
        "error",
        what=f"{_name(found)!r} is neither a factory, a function nor a saved model.",
        why="A model that is built already cannot be built anew in another precision or scope."
        if is_model
        else "The model is built several times, in several ways.",
        fix="Pass a function that returns the compiled model, a ModelFactory, or the path of a "
        ".keras file.",
    )
