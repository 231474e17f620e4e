"""Can the methods that the runtime calls be called as it calls them? A look at a class, without running any of it.

Defaults, ``*args`` and ``**kwargs`` are as good as the parameters themselves. What is no plain Python function (a C
callable, a descriptor, a partial) may take anything, and is let through; so is a decorated one, by what the decorator
made of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from heronry.api.component import Bolt, Spout

# Method: the calls of the runtime, as the parameters each passes. One of them has to fit.
_OF_ALL = {"initialize": (("config", "context"),), "close": ((),)}
_OF_SPOUTS = {
    "next_tuple": ((),),
    "ack": (("tup_id",),),
    "fail": (("tup_id",), ("tup_id", "reason")),
    "activate": ((),),
    "deactivate": ((),),
}
_OF_BOLTS = {"process": (("tup",),), "process_batch": (("tuples",),), "process_tick": (("tup",),)}


def signature_problems(cls: type) -> Iterator[str]:
    """A sentence for each method that could not be called."""
    calls: dict[str, tuple[tuple[str, ...], ...]] = dict(_OF_ALL)
    if issubclass(cls, Spout):
        calls |= _OF_SPOUTS
    if issubclass(cls, Bolt):
        calls |= _OF_BOLTS
    for name, ways in calls.items():
        given = inspect.getattr_static(cls, name, None)
        signature = None if given is None else _signature(cls, name, given)
        if signature is not None and not any(_fits(signature, way) for way in ways):
            expected = " or ".join(f"{name}({', '.join(('self', *way))})" for way in ways)
            yield f"{cls.__name__}.{name}{_written(given)} cannot be called; write {expected}"


def _signature(cls: type, name: str, given: Any) -> inspect.Signature | None:
    """As an instance calls it; None if that cannot be known."""
    try:
        if inspect.isfunction(given):
            whole = inspect.signature(given, follow_wrapped=False)
            return _without_self(whole)
        if isinstance(given, classmethod | staticmethod):
            return inspect.signature(getattr(cls, name), follow_wrapped=False)
    except (TypeError, ValueError):
        return None
    return None


def _without_self(whole: inspect.Signature) -> inspect.Signature | None:
    parameters = list(whole.parameters.values())
    if parameters and parameters[0].kind in (
        inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):  # fmt: skip
        return whole.replace(parameters=parameters[1:])
    if parameters and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL:
        return whole
    return inspect.Signature([inspect.Parameter("self", inspect.Parameter.KEYWORD_ONLY)])  # nobody passes it


def _fits(signature: inspect.Signature, way: tuple[str, ...]) -> bool:
    try:
        signature.bind(*way)
    except TypeError:
        return False
    return True


def _written(given: Any) -> str:
    whole = inspect.signature(getattr(given, "__func__", given), follow_wrapped=False)
    parameters = [parameter.replace(annotation=parameter.empty) for parameter in whole.parameters.values()]
    return str(inspect.Signature(parameters))
