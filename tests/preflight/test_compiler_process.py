"""A compiler that dies, hangs, is missing or is old: a clear error, never a hang or a traceback."""

import json
import stat
import sys

import keras
import pytest
import tensorflow as tf

from keras_tpu_kit.checks import compiler as rules
from keras_tpu_kit.cli import main
from keras_tpu_kit.errors import PreflightError
from keras_tpu_kit.tpu_compiler import Compiler, compile_step, find_compiler

VERSIONS = dict(zip(("jax", "jaxlib", "libtpu"), rules.TESTED[0], strict=True))
BATCH = (tf.TensorSpec((8, 4)), tf.TensorSpec((8, 1)))


def small_model():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.optimizer.build(model.trainable_variables)
    model._symbolic_build(data_batch=BATCH)
    return model


@pytest.fixture
def interpreter(tmp_path):
    """Makes an interpreter that answers for its versions and then does as it is told."""

    def make(then):
        path = tmp_path / "python"
        answer = json.dumps(VERSIONS)
        path.write_text(
            f"#!/bin/sh\nif [ \"$2\" = --versions ]; then echo '{answer}'; exit; fi\n{then}\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return find_compiler(path)

    return make


@pytest.mark.parametrize(
    ("then", "timeout", "code", "words"),
    [
        ("echo out of memory; kill -9 $$", 60, "compiler-killed", ("SIGKILL", "out of memory")),
        ("kill -SEGV $$", 60, "compiler-killed", ("SIGSEGV",)),
        ("exit 3", 60, "compiler-killed", ("exit code 3",)),
        ("exit 0", 60, "compiler-killed", ("v2-8",)),
        ("sleep 600", 1, "compiler-timeout", ("within 1 s", "--timeout 3")),
    ],
)
def test_a_compiler_that_gives_no_answer_is_a_clear_error(interpreter, then, timeout, code, words):
    with pytest.raises(PreflightError) as caught:
        compile_step(
            small_model(),
            BATCH,
            "v2-8",
            compiler=interpreter(then),
            timeout=timeout,
            use_cache=False,
        )

    assert caught.value.finding.code == code
    for word in words:
        assert word in str(caught.value)


def test_an_interpreter_that_is_not_there_is_named():
    with pytest.raises(PreflightError, match="/nowhere/python") as caught:
        find_compiler("/nowhere/python")
    assert caught.value.finding.code == "compiler-python"


def test_an_interpreter_that_fails_is_named(tmp_path):
    path = tmp_path / "python"
    path.write_text("#!/bin/sh\nexit 3\n")
    path.chmod(0o755)
    with pytest.raises(PreflightError, match="ended with exit code 3"):
        find_compiler(path)


def installed(folder, name, version):
    """Makes a distribution of a name and a version, which hides the installed one."""
    made = folder / f"{name}-{version}.dist-info"
    made.mkdir()
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_an_old_libtpu_is_a_clear_error(tmp_path, monkeypatch, capsys):
    installed(tmp_path, "libtpu", "0.0.10")
    monkeypatch.syspath_prepend(tmp_path)

    assert main(["preflight", "--demo"]) == 2

    told = capsys.readouterr().err
    assert "libtpu 0.0.10 do not go together" in told and "--compiler-python" in told


def test_a_missing_extra_is_a_clear_error(tmp_path, capsys):
    """An interpreter without the packages: this one, told to look nowhere but at the kit."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -I "$@"\n')
    bare.chmod(0o755)

    assert main(["preflight", "--demo", "--compiler-python", str(bare)]) == 2

    told = capsys.readouterr().err
    assert "jax, jaxlib, libtpu missing" in told and "keras_tpu_kit[preflight]" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "No model was given"),
        (("nowhere:get_model",), "'nowhere:get_model' names no module"),
        (("keras_tpu_kit.preflight.demo:Minst",), "That module defines Mnist"),
        (("missing.keras",), "There is no model file 'missing.keras'"),
        (("--demo", "--tpu", "v9-8"), "v5litepod-1"),
        (("--demo", "--price", "v3-8"), "--price v3-8=8.0"),
        (("--demo", "--price", "v3-8=8"), "Ask for --tpu all"),
        (("--demo", "--tpu", "all", "--price", "v2-32=8"), "one of v2-8, v3-8"),
        (("--demo", "--timeout", "0"), "--timeout 900"),
        (("--demo", "--html", "nowhere/page.html"), "mkdir -p"),
        (("keras_tpu_kit.preflight.demo:Mnist", "--per-replica-batch", "-5"), "whole number"),
    ],
)
def test_a_wrong_argument_is_a_clear_error(arguments, words, capsys):
    assert main(["preflight", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_another_interpreter_compiles_as_this_one_does():
    assert find_compiler(sys.executable) == Compiler(sys.executable, VERSIONS)
