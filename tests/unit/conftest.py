"""What all tests of units share."""

from hypothesis import HealthCheck, settings

# How long an example takes by the clock on the wall says how busy the machine is, not what is
# tested: a few tests went over 200 ms now and then, where other suites ran beside them.
settings.register_profile("escrowmq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("escrowmq")
settings.register_profile("quick", settings.get_profile("escrowmq"), max_examples=15)
"""Of make unit, which is for while one works."""
