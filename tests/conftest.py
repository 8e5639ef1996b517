"""For every tier: a generated example has no deadline, since how fast a machine is must not decide whether a test passes."""

from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
