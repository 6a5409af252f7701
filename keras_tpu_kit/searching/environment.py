"""What a search's processes tell each other through their environment, as a value.

The first three variables are KerasTuner's own, so a script that is started with them by other
means is a chief or a worker as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_tpu_kit.checks import service as rules
from keras_tpu_kit.errors import Finding, SearchError, refuse

# A worker ended so that a new process, with fresh memory, takes its place.
EXIT_RETIRED = 79
# EX_UNAVAILABLE of sysexits.h: the chief did not answer.
EXIT_NO_CHIEF = 69

_PREFIX = "KERAS_TPU_KIT_"


class SearchOver(SearchError):  # noqa: N818 -- no error: nothing is left to do
    """There is no chief any more, as its search is over."""


@dataclasses.dataclass(frozen=True)
class ServiceSettings:
    """How a chief or a worker takes part in a search.

    Args:
        tuner_id: Name of this process in the search; a chief's holds "chief".
        host: Where the chief listens, or where it is reached.
        port: Its port.
        token: What workers must present, at least 16 characters; empty for none.
        certificate: PEM file: the chief's own certificate, or for a worker the authority's that
            signed it; empty for plain text.
        key: PEM file of the chief's private key.
        wait_seconds: How long a worker waits for a chief that has never answered.
        lost_seconds: How long it waits for one that no longer answers, saying so meanwhile.
        workers_alive: Whether the workers of this chief outlived the one before it.
        max_trials: Trials after which a worker is replaced, 0 for any number.
        max_growth_mb: Megabytes by which a worker's memory may grow before it is replaced,
            0 for any number.
        begun: When this machine's command began, in seconds since 1970; what an earlier search
            left in the project is older.

    Raises:
        SearchError: If the chief would listen to other machines without a token, or a token is
            short.

    Example:

    >>> settings = ServiceSettings("worker0", "127.0.0.1", 7000)
    >>> ServiceSettings.from_environment(settings.to_environment()) == settings
    True
    """

    tuner_id: str
    host: str
    port: int
    token: str = ""
    certificate: str = ""
    key: str = ""
    wait_seconds: float = 15.0
    lost_seconds: float = 60.0
    workers_alive: bool = False
    max_trials: int = 0
    max_growth_mb: int = 0
    begun: float = 0.0

    def __post_init__(self) -> None:
        finding = rules.check_token(self.token)
        if finding is None and self.is_chief:
            finding = rules.check_listening(self.host, self.token)
        refuse(SearchError, finding)

    @property
    def is_chief(self) -> bool:
        """Whether this process hands out the trials; KerasTuner asks the same of the name."""
        return "chief" in self.tuner_id

    @property
    def address(self) -> str:
        """Host and port of the chief."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def to_environment(self) -> dict[str, str]:
        """Returns the variables that say all of this to a child process."""
        own = {
            f"{_PREFIX}{field.name.upper()}": _text(getattr(self, field.name))
            for field in dataclasses.fields(self)[3:]
        }
        return {
            "KERASTUNER_TUNER_ID": self.tuner_id,
            "KERASTUNER_ORACLE_IP": self.host,
            "KERASTUNER_ORACLE_PORT": str(self.port),
            **own,
        }

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> ServiceSettings | None:
        """Returns what the variables say, `None` where they name no chief.

        Raises:
            SearchError: If they name one but not all that is needed.
        """
        if "KERASTUNER_ORACLE_IP" not in variables:
            return None
        given: dict[str, Any] = {}
        for field in dataclasses.fields(cls)[3:]:
            text = variables.get(f"{_PREFIX}{field.name.upper()}", "")
            if text:
                given[field.name] = _value(str(field.type), text)
        try:
            name = variables["KERASTUNER_TUNER_ID"]
            port = int(variables["KERASTUNER_ORACLE_PORT"])
        except (KeyError, ValueError) as error:
            raise SearchError(_incomplete(error)) from None
        return cls(name, variables["KERASTUNER_ORACLE_IP"], port, **given)


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _value(kind: str, text: str) -> Any:
    return {
        "bool": lambda: text == "1",
        "int": lambda: int(text),
        "float": lambda: float(text),
    }.get(kind, lambda: text)()


def _incomplete(error: Exception) -> Finding:
    return Finding(
        "service-variables",
        "error",
        f"KERASTUNER_ORACLE_IP is set, but the other variables of a search are not: {error}.",
        "A worker needs a name and the chief's port as well.",
        "Set KERASTUNER_TUNER_ID=worker0 and KERASTUNER_ORACLE_PORT=7000 too, or unset "
        "KERASTUNER_ORACLE_IP to search in this process alone.",
    )
