"""Settings of all tests: no property test is judged by how long an example takes."""

from hypothesis import settings

settings.register_profile("eqsat", settings(), deadline=None)
settings.load_profile("eqsat")
