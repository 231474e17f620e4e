"""Base of every process: shared values, the wire, the state store, telemetry, launch and liveness.

Imports nothing above it: neither what users import (``heronry``) nor what decides (``heron_control``).
"""
