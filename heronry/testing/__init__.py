"""Tools for unit tests of components."""

from heronry.testing.recorder import Emitted, Recorder

__all__ = ["Emitted", "Recorder"]
