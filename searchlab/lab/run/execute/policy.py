"""The error policy of a run: the consequences of a failed cell."""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.errors import ConfigError


@dataclass(frozen=True, slots=True)
class OnError:
    """Whether a failure ends the run, and how often a cell is retried before it counts as failed."""

    stop: bool = False
    retries: int = 0

    @classmethod
    def parse(cls, text: str) -> OnError:
        """The policy that `continue`, `stop` or `retry:n` names."""
        word, _, count = text.partition(":")
        if text in ("continue", "stop"):
            return cls(stop=text == "stop")
        if word == "retry" and count.isdecimal() and int(count) > 0:
            return cls(retries=int(count))
        raise ConfigError(f"--on-error: '{text}' is none of continue, stop, retry:n (such as retry:2)")


CONTINUE = OnError()
