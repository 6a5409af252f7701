"""Who may listen, who may ask, and how many workers a machine can hold."""

from __future__ import annotations

import pytest

from keras_tpu_kit.checks import service

LONG = "0123456789abcdef"

# check, arguments that are right, then (arguments that are wrong, the code).
TABLE = [
    (
        service.check_token,
        [{"token": ""}, {"token": LONG}],
        [({"token": LONG[1:]}, "token-too-short")],
    ),
    (
        service.check_listening,
        [{"host": "127.0.0.1", "token": ""}, {"host": "0.0.0.0", "token": LONG}],
        [({"host": "0.0.0.0", "token": ""}, "chief-without-token")],
    ),
    (
        service.check_plaintext,
        [{"host": "localhost", "certificate": ""}, {"host": "10.0.0.2", "certificate": "c.pem"}],
        [({"host": "10.0.0.2", "certificate": ""}, "chief-in-plaintext")],
    ),
    (
        service.check_workers,
        [
            {"num_workers": 1, "num_gpus": 0, "has_tpu": True},
            {"num_workers": 2, "num_gpus": 2, "has_tpu": False},
            {"num_workers": 9, "num_gpus": 0, "has_tpu": False},
        ],
        [
            ({"num_workers": 0, "num_gpus": 0, "has_tpu": False}, "no-workers"),
            ({"num_workers": 2, "num_gpus": 0, "has_tpu": True}, "tpu-not-shared"),
            ({"num_workers": 3, "num_gpus": 2, "has_tpu": False}, "more-workers-than-gpus"),
        ],
    ),
]
RIGHT = [(check, args) for check, rights, _ in TABLE for args in rights]
WRONG = [(check, args, code) for check, _, wrongs in TABLE for args, code in wrongs]


@pytest.mark.parametrize(("check", "args"), RIGHT)
def test_what_is_right_passes(check, args):
    assert check(**args) is None


@pytest.mark.parametrize(("check", "args", "code"), WRONG)
def test_what_is_wrong_is_named_and_each_cure_passes(check, args, code):
    finding = check(**args)
    assert finding.code == code
    assert finding.cures
    for cure in finding.cures:
        assert check(**{**args, **cure}) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_only_this_machine_reaches_a_loopback_address(host):
    assert service.is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.127.0.1", "host-a", ""])
def test_other_machines_reach_any_other_address(host):
    assert not service.is_loopback(host)
