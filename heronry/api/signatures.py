"""Check that the runtime can call the methods of a component class. The class is inspected without running it.

Defaults, ``*args`` and ``**kwargs`` are as good as the parameters themselves. An attribute that is not a plain Python
function (a C callable, a descriptor, a partial) may accept anything, so it passes. A decorated function is checked by
the signature that the decorator returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from heronry.api.component import Bolt, Spout

# Method → the runtime's calls, as the parameters that each passes. One of them must fit.
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
    """Yield a sentence for each method that the runtime could not call."""
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
    """Return the signature as seen by a call on an instance. None if it is unknown."""
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
    return inspect.Signature([inspect.Parameter("self", inspect.Parameter.KEYWORD_ONLY)])  # never passed


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
