from tests.unit.api.conftest import Shell, fake, kfjob

__all__ = ["Shell", "fake", "kfjob"]
