"""Settings that all tests share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No test is a race: a busy machine makes examples slow, not wrong.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")
