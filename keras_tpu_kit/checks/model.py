"""Rules on which models train right on several replicas, said on plain facts about them."""

from __future__ import annotations

from collections.abc import Sequence

from keras_tpu_kit.errors import Finding


def check_variable_placement(
    name: str, owner: str, is_on_all_replicas: bool, num_replicas: int
) -> Finding | None:
    """Returns a finding where a variable lives on one device only.

    Args:
        name: The variable's path, such as `"dense/kernel"`.
        owner: What holds it, such as `"layer 'dense'"` or `"the optimizer 'adam'"`.
        is_on_all_replicas: Whether it was made in the strategy's scope.
        num_replicas: Replicas in sync.

    Example:

    >>> print(check_variable_placement("dense/kernel", "layer 'dense'", False, 4).what)
    The variable 'dense/kernel' of layer 'dense' is not on the 4 replicas.
    """
    if is_on_all_replicas or num_replicas == 1:
        return None
    return Finding(
        "variable-outside-scope",
        "error",
        what=f"The variable {name!r} of {owner} is not on the {num_replicas} replicas.",
        why="It was made outside strategy.scope(): it would stay on one device, be updated by "
        "one replica, or stop training with an empty AssertionError.",
        fix="Make it in ModelFactory.build or compile_args, which the kit calls in the scope; call "
        "compile again under `with model.distribute_strategy.scope():`.",
        cures=({"is_on_all_replicas": True},),
    )


def check_model_strategy(model_replicas: int, num_replicas: int) -> Finding | None:
    """Returns a finding where a model was built for fewer replicas than are there.

    Args:
        model_replicas: Replicas of the strategy in whose scope the model was built.
        num_replicas: Replicas that are meant to train.

    Example:

    >>> check_model_strategy(1, 8).code
    'model-outside-scope'
    """
    if model_replicas == num_replicas:
        return None
    return Finding(
        "model-outside-scope",
        "error",
        what=f"The model was built for {model_replicas} replicas, and {num_replicas} are there.",
        why="fit uses the strategy in whose scope the model was made, whatever scope is open "
        "later; the other replicas would idle, silently.",
        fix="Build, compile and load the model under `with strategy.scope():`, or with a "
        "ModelFactory, which does.",
        cures=({"model_replicas": num_replicas},),
    )


def part_on_more_replicas(owner: str, replicas: int, model_replicas: int) -> Finding:
    """Returns the finding for a part of a model that was made in a scope, unlike the model.

    Args:
        owner: The part, such as `"layer 'dense'"` or `"the optimizer 'adam'"`.
        replicas: Replicas that it is on.
        model_replicas: Replicas that the model is on.

    Example:

    >>> print(part_on_more_replicas("the optimizer 'sgd'", 2, 1).what)
    The optimizer 'sgd' is on 2 replicas, and the model on 1.
    """
    return Finding(
        "model-outside-scope",
        "error",
        what=f"{owner[0].upper()}{owner[1:]} is on {replicas} replicas, and the model on "
        f"{model_replicas}.",
        why="The model was made outside strategy.scope(), and trains where it was made: Keras "
        "stops in the first step, with an empty AssertionError or with words about scopes.",
        fix="Make the model, its layers and its optimizer under one `with strategy.scope():`, or "
        "in ModelFactory.build.",
    )


def check_loss_rank(loss: str, rank: int, num_replicas: int) -> Finding | None:
    """Returns a finding where a loss function takes the mean over the batch itself.

    Args:
        loss: The loss, as the user named it.
        rank: Rank of what it returns for a batch: 0 is a scalar.
        num_replicas: Replicas in sync.

    Example:

    >>> check_loss_rank("my_loss", 0, 4).code
    'scalar-loss'
    """
    if rank > 0 or num_replicas == 1:
        return None
    return Finding(
        "scalar-loss",
        "error",
        what=f"The loss {loss!r} returns one number for a whole batch.",
        why=f"The replicas' numbers are summed, so loss and gradients would be {num_replicas} "
        "times too large, silently.",
        fix="Return one number per row: reduce over the last axes only, such as "
        "keras.ops.mean(keras.ops.square(y - p), axis=-1).",
        cures=({"rank": 1},),
    )


def check_jit_compile(jit_compile: bool | str | None, num_replicas: int) -> Finding | None:
    """Returns a finding where XLA is asked for explicitly and several replicas train.

    Args:
        jit_compile: As passed to `compile`; `"auto"` and `False` are safe.
        num_replicas: Replicas in sync.

    Example:

    >>> check_jit_compile(True, 2).code
    'jit-compile'
    """
    if jit_compile is not True or num_replicas == 1:
        return None
    return Finding(
        "jit-compile",
        "error",
        what=f"jit_compile=True, and {num_replicas} replicas train.",
        why="Keras compiles the step around strategy.run, which XLA cannot cross; it crashes in "
        "the first step (a TPU compiles its step in any case).",
        fix='Use jit_compile=False or leave it out ("auto").',
        cures=({"jit_compile": False},),
    )


def check_run_eagerly(run_eagerly: bool) -> Finding | None:
    """Returns a finding where a model that is meant for a TPU runs its steps eagerly.

    Example:

    >>> check_run_eagerly(True).code
    'eager-on-tpu'
    """
    if not run_eagerly:
        return None
    return Finding(
        "eager-on-tpu",
        "error",
        what="The model is compiled with run_eagerly=True.",
        why="TPUStrategy runs compiled steps only, and refuses others: NotImplementedError.",
        fix="Leave out run_eagerly=True; it is for finding faults on a CPU.",
        cures=({"run_eagerly": False},),
    )


def check_gradient_accumulation(
    gradient_accumulation_steps: int | None, num_replicas: int
) -> Finding | None:
    """Returns a finding where stock Keras cannot accumulate gradients over replicas.

    A model that went through `ktk.replicate` is not concerned.

    Args:
        gradient_accumulation_steps: As passed to the optimizer.
        num_replicas: Replicas in sync.

    Example:

    >>> check_gradient_accumulation(2, 4).code
    'gradient-accumulation'
    """
    if not gradient_accumulation_steps or num_replicas == 1:
        return None
    return Finding(
        "gradient-accumulation",
        "error",
        what=f"gradient_accumulation_steps={gradient_accumulation_steps}, and {num_replicas} "
        "replicas train.",
        why="Keras updates the sums under a condition, where replicas cannot meet "
        "(`merge_call called while defining a new graph`).",
        fix="Feed the model through ktk.replicate(model), or use a batch "
        f"{gradient_accumulation_steps} times as large with gradient_accumulation_steps=None.",
        cures=({"gradient_accumulation_steps": None},),
    )


def check_clipping(clips: Sequence[str], num_replicas: int) -> Finding | None:
    """Returns a warning where stock Keras clips each replica's gradient by itself.

    A model that went through `ktk.replicate` is not concerned.

    Args:
        clips: Which of `clipnorm`, `global_clipnorm`, `clipvalue` the optimizer has.
        num_replicas: Replicas in sync.

    Example:

    >>> check_clipping(["clipnorm"], 2).code
    'clipping-per-replica'
    """
    if not clips or num_replicas == 1:
        return None
    return Finding(
        "clipping-per-replica",
        "warning",
        what=f"The optimizer clips gradients ({', '.join(clips)}), and {num_replicas} replicas "
        "train.",
        why="Keras clips each replica's share before the sum, which is not what one device does "
        "(weights differed by 0.009 to 0.02 after one epoch).",
        fix="Feed the model through ktk.replicate(model), which clips after the sum.",
        cures=({"clips": []},),
    )


def check_batch_normalization(unsynchronized: Sequence[str], num_replicas: int) -> Finding | None:
    """Returns a warning where BatchNormalization sees one replica's rows only.

    Args:
        unsynchronized: Names of such layers with `synchronized=False`.
        num_replicas: Replicas in sync.

    Example:

    >>> check_batch_normalization(["bn"], 4).code
    'batchnorm-per-replica'
    """
    if not unsynchronized or num_replicas == 1:
        return None
    return Finding(
        "batchnorm-per-replica",
        "warning",
        what=f"BatchNormalization normalises over one replica's rows ({_shown(unsynchronized)}).",
        why=f"With {num_replicas} replicas their statistics are those of a smaller batch, and "
        "the weights are not those of one device.",
        fix="Use keras.layers.BatchNormalization(synchronized=True), or "
        "ModelFactory(synchronize_batch_norm=True).",
        cures=({"unsynchronized": []},),
    )


def check_dropout(layers: Sequence[str], num_replicas: int) -> Finding | None:
    """Returns a note where stock Keras draws the same random mask on every replica.

    A model that went through `ktk.replicate` is not concerned.

    Args:
        layers: Names of layers that draw random numbers while training.
        num_replicas: Replicas in sync.

    Example:

    >>> check_dropout(["dropout"], 4).severity
    'warning'
    """
    if not layers or num_replicas == 1:
        return None
    return Finding(
        "same-mask-per-replica",
        "warning",
        what=f"Random masks are the same on each of the {num_replicas} replicas "
        f"({_shown(layers)}).",
        why="Row i of every shard loses the same units, so there is less noise than was asked for.",
        fix="Feed the model through ktk.replicate(model), which gives each replica its own.",
        cures=({"layers": []},),
    )


def check_scaled_loss(scales_loss: bool, is_even: bool) -> Finding | None:
    """Returns a finding where a custom `train_step` weighs rows of uneven shards too late.

    Args:
        scales_loss: Whether the step calls `optimizer.scale_loss(loss)` before its gradients.
        is_even: Whether all replicas are known to hold the same number of rows.

    Example:

    >>> check_scaled_loss(False, False).code
    'loss-not-scaled'
    """
    if scales_loss or is_even:
        return None
    return Finding(
        "loss-not-scaled",
        "error",
        what="A custom train_step takes gradients through a synchronized BatchNormalization on "
        "batches that may be uneven, without optimizer.scale_loss.",
        why="There the gradient crosses the replicas, so each loss must be weighed by its rows "
        "before tape.gradient, and the kit does that in scale_loss.",
        fix="Write loss = self.optimizer.scale_loss(loss) before tape.gradient, or batch the "
        "dataset with drop_remainder=True.",
        cures=({"scales_loss": True}, {"is_even": True}),
    )


def _shown(names: Sequence[str], most: int = 3) -> str:
    """Returns some layer names, counted and cut to what a message can bear."""
    layers = "layer" if len(names) == 1 else "layers"
    rest = ", ..." if len(names) > most else ""
    return f"{len(names)} {layers}: " + ", ".join(map(repr, names[:most])) + rest


def check_scalar_loss(loss: str, is_row_mean: bool) -> Finding | None:
    """Returns a finding where a loss's one number for a batch is not the mean over its rows.

    Args:
        loss: The loss, as the user named it.
        is_row_mean: Whether the number for two batches together is their mean, by rows.

    Example:

    >>> check_scalar_loss("my_loss", False).code
    'scalar-loss-not-mean'
    """
    if is_row_mean:
        return None
    return Finding(
        "scalar-loss-not-mean",
        "error",
        what=f"The loss {loss!r} returns one number for a whole batch, and it is not the mean "
        "over rows.",
        why="Each replica would compute it on its own rows only, and the replicas' numbers cannot "
        "be put together into that of the whole batch.",
        fix="Return one number per row, reducing over the last axes only; where a sum is meant, "
        'subclass keras.losses.Loss and pass reduction="sum".',
        cures=({"is_row_mean": True},),
    )


def check_own_metric(metric: str, adds_up: bool) -> Finding | None:
    """Returns a finding where what replicas count in a metric does not make that of their batch.

    Args:
        metric: Its name.
        adds_up: Whether the sums of its variables over two batches give the result for both.

    Example:

    >>> check_own_metric("largest_error", False).code
    'metric-not-sum'
    """
    if adds_up:
        return None
    return Finding(
        "metric-not-sum",
        "error",
        what=f"The metric {metric!r} does not add up over replicas.",
        why="Each replica counts its own rows, and the counts are added: right for sums over rows, "
        "and for their quotients, but not for a maximum, a mean of means, or a number for a "
        "whole batch such as an F1 score.",
        fix="Add numerators and denominators over rows in update_state and divide in result; "
        "return one number per row from a function; or take it from model.predict in a callback.",
        cures=({"adds_up": True},),
    )


def note_unasked_metric(metric: str, reason: str) -> Finding | None:
    """Returns a warning where nobody could tell whether a metric adds up over replicas.

    Args:
        metric: Its name.
        reason: What kept it from being updated with rows made up; empty where it was.

    Example:

    >>> note_unasked_metric("words", "it takes strings").severity
    'warning'
    """
    if not reason:
        return None
    return Finding(
        "metric-unasked",
        "warning",
        what=f"The metric {metric!r} could not be tried on rows made up ({reason}).",
        why="If it is no sum over rows, nor a quotient of such sums, replicas show a wrong value.",
        fix="See that update_state only adds to its variables what is a sum over rows.",
        cures=({"reason": ""},),
    )


def check_own_step(step: str, growth: float, is_random: bool, times: int) -> Finding | None:
    """Returns a finding where a model's own step does not average over the rows of its batch.

    Args:
        step: What is the model's own, such as `"train_step"`.
        growth: How many times as long its gradient is when each row is there `times` times.
        is_random: Whether random numbers lengthen a gradient, the less the more rows there are:
            then that of a mean is between `times ** -0.5` and once as long, that of a sum
            between `times ** 0.5` and `times` times.
        times: How often each row was there; 2 or more.

    Example:

    >>> print(check_own_step("train_step", 8.0, False, 8).what)
    The model's own train_step does not average over the rows of its batch.
    """
    low, high = (times**-0.75, times**0.25) if is_random else (0.95, 1.05)
    if low <= growth <= high:
        return None
    return Finding(
        "own-step-not-mean",
        "error",
        what=f"The model's own {step} does not average over the rows of its batch.",
        why=f"With each row there {times} times its gradient is {growth:.3g} times as long, where "
        "a mean's stays as it is; the gradients of the replicas, which see parts of the batch, "
        "could not be put together into that of the whole.",
        fix="Take the mean over rows (tf.reduce_mean, or divide by tf.shape(x)[0]), use a "
        "keras.losses.Loss, whose sums the kit puts right, or train without ktk.replicate.",
        cures=({"growth": 1.0},),
    )


def note_unasked_step(step: str, reason: str) -> Finding | None:
    """Returns a warning where nobody could tell whether a model's own step averages over rows.

    Args:
        step: What is the model's own, such as `"train_step"`.
        reason: What kept it from being run on rows made up; empty where it was run.

    Example:

    >>> note_unasked_step("train_step", "it takes strings").severity
    'warning'
    """
    if not reason:
        return None
    return Finding(
        "own-step-unasked",
        "warning",
        what=f"The model's own {step} could not be tried on rows made up ({reason}).",
        why="If it sums over the rows of its batch, replicas train with gradients too small, since "
        "the kit weighs each by its part of the rows.",
        fix="See that its loss is a mean over rows, such as tf.reduce_mean(per_row_loss), or a "
        "keras.losses.Loss.",
        cures=({"reason": ""},),
    )


def check_optimizers_built(unbuilt: Sequence[str]) -> Finding | None:
    """Returns a finding where optimizers of a model's own step have no variables to save yet.

    Args:
        unbuilt: Their names.

    Example:

    >>> check_optimizers_built(["adam_1"]).code
    'optimizer-not-built'
    """
    if not unbuilt:
        return None
    return Finding(
        "optimizer-not-built",
        "error",
        what=f"The model holds optimizers that are not built ({', '.join(map(repr, unbuilt))}).",
        why="They make their variables in the first step, of which only the model's own train_step "
        "knows whose they are; saved values would have no place to go when training is resumed.",
        fix="Build each where it is made, such as "
        "d_optimizer.build(self.discriminator.trainable_variables) in compile.",
        cures=({"unbuilt": []},),
    )


def check_on_batch(method: str, num_workers: int) -> Finding | None:
    """Returns a finding where one batch is handed to several workers whole.

    Args:
        method: The Keras method, such as `"train_on_batch"`.
        num_workers: Processes that train together.

    Example:

    >>> check_on_batch("train_on_batch", 2).code
    'on-batch-several-workers'
    """
    if num_workers == 1:
        return None
    return Finding(
        "on-batch-several-workers",
        "error",
        what=f"{method} was called, and {num_workers} workers train.",
        why="A batch handed over whole does not say which rows are whose.",
        fix="Use fit, evaluate or predict with a tf.data.Dataset, which is cut over the workers.",
        cures=({"num_workers": 1},),
    )


def check_step_names(step: str, names: Sequence[str]) -> Finding | None:
    """Returns a finding where a custom step divides by the replicas, or the global batch, itself.

    Args:
        step: The overridden method, such as `"train_step"`.
        names: What its code refers to.

    Example:

    >>> print(check_step_names("train_step", ["reduce_mean", "compute_average_loss"]).what)
    The model's own train_step uses compute_average_loss.
    """
    own = sorted({"compute_average_loss", "num_replicas_in_sync", "scale_regularization_loss"})
    used = [name for name in own if name in names]
    if not used:
        return None
    return Finding(
        "step-scales-itself",
        "error",
        what=f"The model's own {step} uses {', '.join(used)}.",
        why="The kit weighs each replica's loss by its rows, so a step that does so as well would "
        "train with gradients too small.",
        fix="Write the step as for one device, such as loss = tf.reduce_mean(per_row_loss), or "
        "train without ktk.replicate.",
        cures=({"names": []},),
    )


def check_step_clips(step: str, names: Sequence[str]) -> Finding | None:
    """Returns a finding where a custom step clips gradients by their length itself.

    Args:
        step: The overridden method, such as `"train_step"`.
        names: What its code refers to.

    Example:

    >>> print(check_step_clips("train_step", ["clip_by_global_norm"]).what)
    The model's own train_step uses clip_by_global_norm.
    """
    used = [name for name in ("clip_by_global_norm", "clip_by_norm") if name in names]
    if not used:
        return None
    return Finding(
        "step-clips-itself",
        "error",
        what=f"The model's own {step} uses {', '.join(used)}.",
        why="It would clip what each replica's rows give, before the sum over replicas, which is "
        "not the clipped gradient of the whole batch.",
        fix="Leave it to the optimizer, which clips after the sum: "
        "keras.optimizers.Adam(global_clipnorm=1.0), or clipnorm=1.0 for each variable.",
        cures=({"names": []},),
    )


_MENDED = {
    "clipping": (
        "clipping-after-sum",
        "Gradients are clipped ({names}) after the sum over {replicas} replicas.",
        "On one device the whole gradient is clipped, and so it is here.",
    ),
    "accumulation": (
        "accumulation-of-sums",
        "Gradients are accumulated ({names}) after the sum over {replicas} replicas.",
        "Each update then equals that of one device.",
    ),
    "masks": (
        "own-mask-per-replica",
        "Random layers ({names}) draw other numbers on each of the {replicas} replicas.",
        "Equal numbers would be less noise than was asked for; a seed gives the same ones again.",
    ),
    "statistics": (
        "batchnorm-synchronized",
        "BatchNormalization ({names}) normalises over the rows of all {replicas} replicas.",
        "Its statistics are those of one device, at the price of a small sum in each layer.",
    ),
}


def note_mended(part: str, names: Sequence[str], num_replicas: int) -> Finding | None:
    """Returns a note on what the kit does otherwise than stock Keras on several replicas.

    Args:
        part: `"clipping"`, `"accumulation"`, `"masks"` or `"statistics"`.
        names: Arguments or layers it concerns.
        num_replicas: Replicas in sync.

    Example:

    >>> print(note_mended("clipping", ["clipnorm=0.5"], 2).what)
    Gradients are clipped (clipnorm=0.5) after the sum over 2 replicas.
    """
    if not names or num_replicas == 1:
        return None
    code, what, why = _MENDED[part]
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return Finding(
        code,
        "info",
        what=what.format(names=shown, replicas=num_replicas),
        why=why,
        fix="Nothing needs to be done.",
        cures=({"names": []},),
    )


def check_padding(kind: str, names: Sequence[str]) -> Finding | None:
    """Returns a finding where padded rows of an evaluation could not be left out.

    Args:
        kind: What cannot be masked.
        names: Layers or losses that have it.

    Example:

    >>> check_padding("add_loss", ["encoder"]).code
    'padding-counted'
    """
    if not names:
        return None
    return Finding(
        "padding-counted",
        "error",
        what=f"{kind} of {', '.join(map(repr, names[:3]))} would count padded rows.",
        why="Shapes are static here, so the last batch of an evaluation is filled up, and one "
        "number for a whole batch cannot leave the filling out.",
        fix="Evaluate a number of rows that the batch divides, with "
        "dataset.batch(batch_size, drop_remainder=True).",
        cures=({"names": []},),
    )


def check_static_batch(is_static: bool) -> Finding | None:
    """Returns a finding where training batches may differ in size and shapes must be static.

    Args:
        is_static: Whether the dataset's batch axis has a known size.

    Example:

    >>> check_static_batch(False).code
    'batch-not-static'
    """
    if is_static:
        return None
    return Finding(
        "batch-not-static",
        "error",
        what="The training dataset's batches have no fixed number of rows.",
        why="A TPU compiles its step for one shape, and a short last batch has another.",
        fix="Use dataset.batch(global_batch_size, drop_remainder=True), or "
        "ktk.make_dataset(data, plan), which does.",
        cures=({"is_static": True},),
    )
