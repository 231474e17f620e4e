"""Assembly of a definition from declarations: names, references and configuration, with all problems at once.

Class bodies and builders both end here. Every declaration gets its name and is turned into a frozen ``ComponentSpec``
as far as possible, with its problems. ``heronry.api.validate`` then checks the whole. A problem in one part does not
hide problems in others.

The methods of a component class are checked without running it: the runtime can call them. Defaults, ``*args`` and
``**kwargs`` are as good as the parameters themselves. An attribute that is not a plain Python function (a C callable, a
descriptor, a partial) may accept anything, so it passes. A decorated function is checked by the signature that the
decorator returns.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from heron_runtime.extensions import GROUPINGS, ExtensionError
from heron_runtime.model.ids import DEFAULT_STREAM
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import (
    ComponentKind,
    ComponentSpec,
    GroupingKind,
    GroupingSpec,
    InputSpec,
    StreamSchema,
    TopologyDefinition,
)
from heronry.api.component import EFFECTS, Bolt, Component, Spout
from heronry.api.config import Config, check_config
from heronry.api.config_values import BadValue, is_class_path, to_plain_data
from heronry.api.dead_letters import check_dead_letters, dead_letter_schemas, find_unread_dead_letters
from heronry.api.errors import TopologyError
from heronry.api.grouping import Grouping
from heronry.api.spec import ComponentDeclaration, Stream, StreamReference
from heronry.api.state import TwoPhaseSink
from heronry.api.validate import validate_definition


@dataclass
class TopologyDraft:
    """Declared topology: components in order, by name. ``aliases`` are other declarations of a component."""

    name: str
    components: Sequence[tuple[str, ComponentDeclaration]]
    config: Mapping[str, Any] = field(default_factory=dict)
    aliases: Sequence[tuple[str, ComponentDeclaration]] = ()
    problems: list[str] = field(default_factory=list)


def build_definition(draft: TopologyDraft) -> TopologyDefinition:
    """Return the definition with a new id. Raises TopologyError, also for classes that instances cannot import."""
    definition = check_draft(draft)
    problems = [
        f"{kind} {name!r}: {problem}"
        for name, declaration in draft.components
        for kind, cls in _classes(declaration)
        for problem in _unimportable(cls)
    ]
    if problems:
        raise TopologyError(problems, draft.name)
    return replace(definition, config={**definition.config, Config.TOPOLOGY_NAME: draft.name})


def check_draft(draft: TopologyDraft) -> TopologyDefinition:
    """Return the definition without checking imports. Raises TopologyError with every problem."""
    config, config_problems = check_config(draft.config, component=False, operator=False)
    problems = [*draft.problems, *config_problems]
    names = {id(declaration): name for name, declaration in (*draft.aliases, *draft.components)}
    components, incomplete = [], set()
    for name, declaration in draft.components:
        assembly = ComponentAssembler(name, declaration, names, config)
        components.append(assembly.component())
        problems += assembly.problems
        if assembly.inputs_lost:
            incomplete.add(name)
    definition = TopologyDefinition(draft.name, f"{draft.name}-{os.urandom(6).hex()}", tuple(components), config)
    problems += validate_definition(definition, incomplete)
    if not incomplete:
        problems += [
            p
            for name, declared in draft.components
            for p in find_unread_dead_letters(definition, name, declared.component_class)
        ]
    if problems:
        raise TopologyError(list(dict.fromkeys(problems)), draft.name if isinstance(draft.name, str) else "")
    return definition


class ComponentAssembler:
    """Conversion of one declaration to a ComponentSpec."""

    def __init__(
        self, name: str, declaration: ComponentDeclaration, names: Mapping[int, str], config: Mapping[str, Any]
    ) -> None:
        self._name = name
        self._declared = declaration
        self._class = declaration.component_class
        self._names = names
        self._topology_config = config
        self.problems: list[str] = []
        self.inputs_lost = False  # some inputs were not understood: do not complain that there are none

    def component(self) -> ComponentSpec:
        """Return the specification of the component; errors are collected in ``problems``."""
        kind = self._kind()
        config = self._config()
        inputs = tuple(self._inputs())
        outputs = tuple(self._outputs())
        self._look_at_dead_letters(config, list(outputs))
        return ComponentSpec(
            self._name,
            kind,
            class_path(self._class) if isinstance(self._class, type) else "",
            self._parallelism(config),
            (*outputs, *dead_letter_schemas(self._class)),
            inputs,
            config,
        )

    def _problem(self, text: str) -> None:
        self.problems.append(f"component {self._name!r}: {text}")

    def _kind(self) -> ComponentKind:
        cls = self._class
        if not isinstance(cls, type) or not issubclass(cls, Component) or not hasattr(cls, "component_kind"):
            self._problem(f"{cls!r} is not a Spout or Bolt class; derive it from heronry.Spout or heronry.Bolt")
            return ComponentKind.BOLT if self._declared.inputs else ComponentKind.SPOUT
        if issubclass(cls, Spout) and cls.next_tuple is Spout.next_tuple:
            self._problem(f"{cls.__name__} does not define next_tuple, which every spout needs")
        if issubclass(cls, Bolt) and cls.process is Bolt.process and not _overrides(cls, "process_batch"):
            self._problem(f"{cls.__name__} defines neither process nor process_batch; a bolt needs one of them")
        if inspect.isabstract(cls):
            missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
            self._problem(f"{cls.__name__} is abstract; define {missing}")
        if issubclass(cls, Bolt) and cls.output_effect not in ("", *EFFECTS):
            self._problem(
                f"{cls.__name__}.output_effect is {cls.output_effect!r}; write {' or '.join(map(repr, EFFECTS))}"
            )
        for problem in signature_problems(cls):
            self._problem(problem)
        return cls.component_kind

    def _config(self) -> dict[str, Any]:
        of_class = getattr(self._class, "config", None)
        merged: Any = self._declared.config
        if isinstance(of_class, Mapping) and (merged is None or isinstance(merged, Mapping)):
            merged = {**of_class, **(merged or {})}
        plain, problems = check_config(merged if merged is not None else {}, component=True, operator=False)
        for problem in problems:
            self._problem(problem)
        # The component's own tick frequency wins over the topology's, in whichever unit either is given.
        seconds, milliseconds = Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS, Config.TOPOLOGY_TICK_TUPLE_FREQ_MS
        for mine, others in ((seconds, milliseconds), (milliseconds, seconds)):
            if mine in plain and others in self._topology_config and others not in plain:
                plain[others] = None
        if isinstance(self._class, type) and issubclass(self._class, Component):
            for problem in self._class.config_problems({**self._topology_config, **plain}):
                self._problem(f"{self._class.__name__} {problem}")
            mode = setting({**self._topology_config, **plain}, Keys.TOPOLOGY_RELIABILITY_MODE)
            waits = issubclass(self._class, TwoPhaseSink) and not self._class.commits_alone
            if waits and mode != Config.EFFECTIVELY_ONCE:
                self._problem(
                    f"{self._class.__name__} is a two-phase sink, and with {mode} nothing that it writes is ever "
                    f"committed; set {Config.TOPOLOGY_RELIABILITY_MODE} to {Config.EFFECTIVELY_ONCE}"
                )
        return plain

    def _look_at_dead_letters(self, config: Mapping[str, Any], outputs: list[StreamSchema]) -> None:
        if isinstance(self._class, type) and issubclass(self._class, Component):
            whole = {**self._topology_config, **config}
            mode, serializer = (
                setting(whole, key) for key in (Keys.TOPOLOGY_RELIABILITY_MODE, Keys.TOPOLOGY_SERIALIZER)
            )
            for problem in check_dead_letters(self._class, mode, serializer, outputs):
                self._problem(problem)

    def _parallelism(self, config: Mapping[str, Any]) -> int:
        par = self._declared.par
        if par is None:
            par = setting({**self._topology_config, **config}, Keys.TOPOLOGY_COMPONENT_PARALLELISM)
        if isinstance(par, bool) or not isinstance(par, int):
            self._problem(f"par is {par!r}; write the number of tasks, for example par=2")
            return 1
        return par

    def _outputs(self) -> Iterator[StreamSchema]:
        plain: list[str] = []
        streams: list[StreamSchema] = []
        for source in (getattr(self._class, "outputs", ()), self._declared.optional_outputs or ()):
            if isinstance(source, str) or not isinstance(source, Sequence):
                self._problem(f"outputs is {source!r}; write a list of field names or Streams: outputs = ['word']")
                continue
            for output in source:
                if isinstance(output, str):
                    plain.append(output)
                elif isinstance(output, Stream):
                    streams.append(self._stream(output))
                else:
                    self._problem(f"outputs holds {output!r}; write field names and Stream(fields=[...], name=...)")
        if plain:
            yield StreamSchema(DEFAULT_STREAM, tuple(plain))
        yield from streams

    def _stream(self, stream: Stream) -> StreamSchema:
        wrong = [name for name in stream.fields if not isinstance(name, str)]
        if wrong:
            self._problem(f"stream {stream.name!r} has a field {wrong[0]!r}; fields are named by strings")
        return StreamSchema(stream.name, tuple(f for f in stream.fields if isinstance(f, str)), bool(stream.direct))

    def _inputs(self) -> Iterator[InputSpec]:
        declared = self._declared.inputs
        if declared is None:
            return
        if isinstance(declared, Mapping):
            pairs = list(declared.items())
        elif isinstance(declared, list | tuple | set | frozenset):
            pairs = [(source, Grouping.SHUFFLE) for source in declared]
        else:
            self._lost(f"inputs is {declared!r}; write inputs={{source: Grouping.SHUFFLE}} or a list of sources")
            return
        for source, grouping in pairs:
            place = self._source(source)
            how = self._grouping(source, grouping)
            if place is not None and how is not None:
                yield InputSpec(*place, how)

    def _lost(self, text: str) -> None:
        self._problem(text)
        self.inputs_lost = True

    def _source(self, source: Any) -> tuple[str, str] | None:
        stream = DEFAULT_STREAM
        if isinstance(source, tuple) and len(source) == 2:
            source, stream = source
        if isinstance(source, StreamReference):
            source, stream = source.component, source.stream
        if not isinstance(stream, str):
            self._lost(f"reads stream {stream!r} of {source!r}; streams are named by strings")
            return None
        if isinstance(source, str):
            return source, stream
        if isinstance(source, ComponentDeclaration):
            name = self._names.get(id(source))
            if name is None:
                self._lost(
                    f"reads {source!r}, which is not part of this topology; give it a name in the class body first"
                )
                return None
            return name, stream
        if isinstance(source, type):
            self._lost(f"reads the class {source.__name__}; name the component made by {source.__name__}.spec()")
            return None
        self._lost(f"reads {source!r}; a source is what spec() returned, one of its streams, or a component's name")
        return None

    def _grouping(self, source: Any, grouping: Any) -> GroupingSpec | None:
        if not isinstance(grouping, Grouping):
            cure = "Grouping.fields('word')" if callable(grouping) else "Grouping.SHUFFLE"
            self._lost(f"the grouping of input {source!r} is {grouping!r}; write one of Grouping, such as {cure}")
            return None
        wrong = [name for name in grouping.field_names if not isinstance(name, str)]
        if wrong:
            self._lost(f"Grouping.fields got {wrong[0]!r}; fields are named by strings")
            return None
        if grouping.kind is not GroupingKind.CUSTOM:
            return GroupingSpec(grouping.kind, grouping.field_names)
        return self._custom(grouping)

    def _custom(self, grouping: Grouping) -> GroupingSpec | None:
        try:
            arguments = to_plain_data(grouping.arguments)
        except BadValue as error:
            self._lost(f"the arguments of Grouping.custom: {error}")
            return None
        try:
            path = _grouping_path(grouping.target, arguments)
        except BadValue as error:
            self._lost(str(error))
            return None
        packed = msgspec.msgpack.encode(arguments) if arguments else b""
        return GroupingSpec(GroupingKind.CUSTOM, (), path, packed)


def _grouping_path(target: Any, arguments: dict[str, Any]) -> str:
    """Return the class path of a custom grouping. Raises BadValue for an invalid one, or invalid arguments."""
    wrong = f"the custom grouping {target!r} is neither a class nor a path such as 'module:Class'"
    if isinstance(target, str):
        path = _colon_path(target)
        if is_class_path(path):
            return path
        try:
            target = GROUPINGS.load(target)
        except ExtensionError as error:
            raise BadValue(f"{wrong} nor plugged in: {error.line()}") from None
    if not isinstance(target, type):
        raise BadValue(wrong)
    missing = [name for name in ("prepare", "choose_tasks") if not callable(getattr(target, name, None))]
    if missing:
        raise BadValue(f"the custom grouping {target.__name__} has no {' and no '.join(missing)}")
    try:
        inspect.signature(target).bind(**arguments)
    except TypeError as error:
        raise BadValue(f"the custom grouping {target.__name__} cannot be made with these arguments: {error}") from None
    except ValueError:
        pass  # a class of an extension module without a signature
    return class_path(target)


def class_path(cls: type) -> str:
    """Return ``module:qualified.name``, by which instances import the class."""
    return f"{cls.__module__}:{cls.__qualname__}"


def _overrides(cls: type, method: str) -> bool:
    base = getattr(Bolt, method, None)
    return getattr(cls, method, None) is not base


def _colon_path(path: str) -> str:
    """Return the heronpy path ``package.module.Class`` as ``package.module:Class``."""
    module, dot, name = path.rpartition(".")
    return path if ":" in path or not dot else f"{module}:{name}"


def _classes(declaration: ComponentDeclaration) -> Iterator[tuple[str, type]]:
    """Yield the classes that instances import: the component and its custom groupings."""
    yield "component", declaration.component_class
    if isinstance(declaration.inputs, Mapping):
        for grouping in declaration.inputs.values():
            if isinstance(grouping.target, type):
                yield "custom grouping of component", grouping.target


def _unimportable(cls: type) -> Iterator[str]:
    """Yield the reasons why instances cannot import a class by name."""
    if cls.__module__ == "__main__":
        yield (
            f"class {cls.__name__} is defined in __main__, which no other process can import; run the file with "
            "`heron submit`, or import it as a module"
        )
        return
    if "<" in cls.__qualname__:
        yield f"class {cls.__qualname__} is defined inside a function; move it to the top level of its module"
        return
    value: Any = sys.modules.get(cls.__module__)
    if value is None:
        return
    for name in cls.__qualname__.split("."):
        value = getattr(value, name, None)
    if value is not cls:
        yield (
            f"{class_path(cls)} leads to {value!r}, not to the class used here; classes are imported by their names, "
            "so each needs a unique name"
        )


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
