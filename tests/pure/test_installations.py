"""Known bad installations: each is named, and what is proposed passes."""

import pytest

from keras_tpu_kit.checks import environment

GOOD = {"tensorflow": "2.21.0"}

# check, arguments that are right, then (arguments that are wrong, the code).
TABLE = [
    (
        environment.check_wheels,
        [{"wheels": GOOD}, {"wheels": {}}, {"wheels": {"tensorflow-tpu": "2.19.1"}}],
        [
            (
                {"wheels": {"tensorflow": "2.21.0", "tensorflow-tpu": "2.19.1"}},
                "tensorflow-over-tpu",
            ),
            ({"wheels": {"tensorflow": "2.21.0", "tensorflow-cpu": "2.21.0"}}, "tensorflow-twice"),
            ({"wheels": {"tf-nightly": "2.22.0", "tensorflow-cpu": "2.21.0"}}, "tensorflow-twice"),
        ],
    ),
    (
        environment.check_tensorflow_version,
        [{"version": one} for one in ("2.19.1", "2.20.0", "2.21.0", "2.21.0rc1")],
        [({"version": "2.18.1"}, "tensorflow-version"), ({"version": "3.0"}, "tensorflow-version")],
    ),
    (
        environment.check_python_version,
        [
            {"python": (3, 12), "wheels": {"tensorflow": "2.19.1"}},
            {"python": (3, 13), "wheels": GOOD},
            {"python": (3, 13), "wheels": {}},
        ],
        [({"python": (3, 13), "wheels": {"tensorflow-tpu": "2.19.1"}}, "python-version")],
    ),
    (
        environment.check_legacy_keras,
        [{"use_legacy_keras": one} for one in (None, "", "0", "false")],
        [({"use_legacy_keras": one}, "legacy-keras") for one in ("1", "True")],
    ),
    (
        environment.check_tensorboard,
        [{"version": "2.21.0"}],
        [({"version": None}, "tensorboard-missing")],
    ),
    (
        environment.check_compiler_triple,
        [
            {"jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.52"},
            {"jax": None, "jaxlib": None, "libtpu": "0.0.10"},
            {"jax": "0.7.0", "jaxlib": "0.7.0", "libtpu": None},
        ],
        [({"jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.10"}, "compiler-versions")],
    ),
    (
        environment.check_tpu_wheel,
        [
            {"num_chips": 4, "wheels": {"tensorflow-tpu": "2.19.1"}},
            {"num_chips": 0, "wheels": GOOD},
            {"num_chips": 4, "wheels": {}},
        ],
        [
            ({"num_chips": 4, "wheels": GOOD}, "tpu-without-kernels"),
            ({"num_chips": 1, "wheels": GOOD}, "tpu-without-kernels"),
            ({"num_chips": 0, "wheels": {"tensorflow-tpu": "2.19.1"}}, "tpu-wheel-without-tpu"),
        ],
    ),
    (
        environment.check_gpu_visible,
        [
            {"num_gpus": 2, "has_driver": True, "cuda_visible_devices": "", "wheels": GOOD},
            {"num_gpus": 0, "has_driver": False, "cuda_visible_devices": None, "wheels": GOOD},
        ],
        [
            (
                {"num_gpus": 0, "has_driver": True, "cuda_visible_devices": hidden, "wheels": GOOD},
                "gpu-hidden",
            )
            for hidden in ("", "-1", " -1")
        ]
        + [
            (
                {"num_gpus": 0, "has_driver": True, "cuda_visible_devices": "0", "wheels": wheels},
                "gpu-not-seen",
            )
            for wheels in (GOOD, {}, {"tensorflow-cpu": "2.21.0", "tf-nightly": "2.22.0"})
        ],
    ),
]


@pytest.mark.parametrize(
    ("check", "arguments"), [(check, right) for check, rights, _ in TABLE for right in rights]
)
def test_what_works_passes(check, arguments):
    assert check(**arguments) is None


@pytest.mark.parametrize(
    ("check", "arguments", "code"),
    [(check, *wrong) for check, _, wrongs in TABLE for wrong in wrongs],
)
def test_what_does_not_work_is_named_and_each_cure_passes(check, arguments, code):
    finding = check(**arguments)
    assert finding.code == code
    assert finding.cures
    for cure in finding.cures:
        assert check(**{**arguments, **cure}) is None


def test_the_command_against_an_overwritten_tpu_wheel_removes_both_and_installs_the_right_one():
    finding = environment.check_wheels({"tensorflow": "2.21.0", "tensorflow-tpu": "2.19.1"})
    assert finding.fix == (
        "pip uninstall -y tensorflow tensorflow-tpu && pip install tensorflow-tpu==2.19.1"
    )


def test_a_newer_tensorflow_is_a_warning_and_an_older_one_an_error():
    assert environment.check_tensorflow_version("2.22.0").severity == "warning"
    assert environment.check_tensorflow_version("2.16.2").severity == "error"
