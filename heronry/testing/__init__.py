"""What users test their own components with."""

from heronry.testing.recorder import Emitted, Recorder

__all__ = ["Emitted", "Recorder"]
