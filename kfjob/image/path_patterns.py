"""Match a path against many glob patterns at once, in time linear in the length of the path. No I/O.

All patterns are one automaton whose states are the bits of an integer: one step for each character, without backtracking.
Regular expressions need exponential time for patterns such as `**/*a*a*a*b`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Classes = re.Pattern[str] | str | None
"""Characters of a transition: a class such as `[a-c]`, one character, or none."""
_ANY, _NO_SLASH = re.compile(".", re.DOTALL), re.compile("[^/]")
_MAX_CACHE = 10_000


@dataclass(frozen=True, kw_only=True)
class _State:
    """A state: the characters that lead to the next state, those that stay, and how many steps lead on without a character."""

    accepts: Classes = None
    stays: Classes = None
    skips_one: bool = False
    skips_two: bool = False


class PathPatterns:
    """The automaton of all patterns."""

    def __init__(self, patterns: Sequence[str]) -> None:
        """Compile the patterns.

        Raises:
            re.error: a pattern is not valid.
        """
        self._states: list[_State] = []
        self._starts, self._finals = 0, []
        for pattern in patterns:
            self._starts |= 1 << len(self._states)
            self._states += _parse_states(pattern)
            self._finals.append(1 << len(self._states))
            self._states.append(_State())
        self._all_finals = sum(self._finals)
        self._skips = self._select(lambda state: state.skips_one), self._select(lambda state: state.skips_two)
        self._transitions: dict[str, tuple[int, int]] = {}
        self._starts = self._skip(self._starts)
        self._prefixes: dict[str, tuple[int, int]] = {}

    def match(self, path: str) -> list[bool]:
        """Return for each pattern whether it matches the path or a folder above it."""
        parent, slash, name = path.rpartition("/")
        states, finals = self._read_folder(parent) if slash else (self._starts, 0)
        states = self._read(states, name)
        finals |= states & self._all_finals
        return [bool(finals & final) for final in self._finals]

    def _read_folder(self, folder: str) -> tuple[int, int]:
        """Return the states after `folder/`, and the final states of the folder and those above it."""
        if folder not in self._prefixes:
            states, finals = self._starts, 0
            for part in folder.split("/"):
                states = self._read(states, part)
                finals |= states & self._all_finals
                states = self._read(states, "/")
            if len(self._prefixes) >= _MAX_CACHE:
                self._prefixes.clear()
            self._prefixes[folder] = states, finals
        return self._prefixes[folder]

    def _read(self, states: int, text: str) -> int:
        for character in text:
            if not states:
                return 0
            accepts, stays = self._find_transition(character)
            states = self._skip((states & accepts) << 1 | states & stays)
        return states

    def _find_transition(self, character: str) -> tuple[int, int]:
        if character not in self._transitions:
            self._transitions[character] = (
                self._select(lambda state: _contains(state.accepts, character)),
                self._select(lambda state: _contains(state.stays, character)),
            )
        return self._transitions[character]

    def _skip(self, states: int) -> int:
        previous = 0
        while states != previous:
            previous = states
            states |= (states & self._skips[0]) << 1 | (states & self._skips[1]) << 2
        return states

    def _select(self, condition: Callable[[_State], bool]) -> int:
        return sum(1 << number for number, state in enumerate(self._states) if condition(state))


def _contains(characters: Classes, character: str) -> bool:
    if isinstance(characters, re.Pattern):
        return characters.match(character) is not None
    return characters == character


def _parse_states(pattern: str) -> list[_State]:
    states: list[_State] = []
    position = 0
    while position < len(pattern):
        new_states, position = _parse_token(pattern, position)
        is_repeated_star = new_states[0].skips_one and new_states == states[-len(new_states) :]
        states += [] if is_repeated_star else new_states
    return states


def _parse_token(pattern: str, start: int) -> tuple[list[_State], int]:
    """Return the states of the token at `start`, and the position after the token.

    `**/` matches any number of folders, another `**` matches everything, `*` and `?` do not match `/`.
    """
    if pattern.startswith("**", start):
        if pattern.startswith("/", start + 2) and start + 3 < len(pattern):
            return [_State(skips_one=True, skips_two=True), _State(accepts="/", stays=_ANY)], start + 3
        return [_State(stays=_ANY, skips_one=True)], start + 2
    match pattern[start]:
        case "*":
            state = _State(stays=_NO_SLASH, skips_one=True)
        case "?":
            state = _State(accepts=_NO_SLASH)
        case "\\":
            return [_State(accepts=pattern[start + 1 : start + 2] or "\\")], start + 2
        case "[":
            return _parse_class(pattern, start)
        case literal:
            state = _State(accepts=literal)
    return [state], start + 1


def _parse_class(pattern: str, start: int) -> tuple[list[_State], int]:
    end = pattern.find("]", start + 1)
    if end < 0:
        raise re.error("a `[` is not closed")
    members = pattern[start + 1 : end].replace("[", "\\[")
    return [_State(accepts=re.compile(f"[{members}]"))], end + 1
