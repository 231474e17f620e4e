"""What holds for every test: Hypothesis judges laws, not the speed of the machine."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("heronry", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("heronry")
