"""``TopologyBuilder``: a topology put together step by step, for graphs that a program computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heron_runtime.model.topology import TopologyDefinition
from heronry.api.assemble import Draft, check, define
from heronry.api.errors import TopologyError
from heronry.api.spec import ComponentDeclaration, Inputs
from heronry.api.stream import Stream


class TopologyBuilder:
    """Add spouts and bolts, then leave the builder in a module-level variable: ``heron submit`` finds it by that name.

    Inputs may name components by what ``add_spout``/``add_bolt`` returned or by name.
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self._components: list[ComponentDeclaration] = []
        self._config: dict[str, Any] = {}

    def add_spout(
        self,
        name: str,
        spout_class: type,
        par: int | None = None,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> ComponentDeclaration:
        """Add a spout with ``par`` tasks."""
        return self.add_spec(ComponentDeclaration(spout_class, name, par, None, config, optional_outputs))

    def add_bolt(
        self,
        name: str,
        bolt_class: type,
        par: int | None = None,
        inputs: Inputs | None = None,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> ComponentDeclaration:
        """Add a bolt with ``par`` tasks that reads ``inputs``: a mapping to groupings, or a list (shuffled)."""
        return self.add_spec(ComponentDeclaration(bolt_class, name, par, inputs, config, optional_outputs))

    def add_spec(self, *specs: ComponentDeclaration) -> ComponentDeclaration:
        """Add what ``WordSpout.spec(name="words")`` returned; the name must be given. Returns the last one."""
        if not specs:
            raise TypeError("add_spec needs at least one spec")
        for spec in specs:
            if not isinstance(spec, ComponentDeclaration):
                raise TypeError(f"add_spec takes what SomeSpout.spec(name=...) returns, not {spec!r}")
            if not spec.name:
                raise TopologyError(f"{spec!r} has no name; write spec(name='…')", self.name or "")
            self._components.append(spec)
        return specs[-1]

    def set_config(self, config: Mapping[str, Any]) -> None:
        """Lay these keys over the configuration so far."""
        self._config.update(config)

    def build(self) -> TopologyBuilder:
        """Check everything now. Returns the builder itself. Raises TopologyError."""
        check(self._draft(self.name or "topology"))
        return self

    def definition(self, name: str | None = None) -> TopologyDefinition:
        """The logical plan, checked, with a new id. ``name`` overrides the builder's own. Raises TopologyError."""
        chosen = name or self.name
        if not chosen:
            raise TopologyError("the topology has no name; write TopologyBuilder('…'), or give one to definition()")
        return define(self._draft(chosen))

    def _draft(self, name: str) -> Draft:
        return Draft(name, [(spec.name or "", spec) for spec in self._components], self._config)
