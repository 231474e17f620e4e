"""What holds for every test: Hypothesis judges laws, not the speed of the machine."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("heronry", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("heronry")

# A shell starts background jobs with SIGINT ignored, and children inherit that; the tests of Ctrl-C need it to work.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
