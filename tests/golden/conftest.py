import pytest


def pytest_addoption(parser):
    parser.addoption(
        "--update-goldens", action="store_true", help="write what the code makes now; read the diff before you commit it"
    )


@pytest.fixture
def update_goldens(request) -> bool:
    return bool(request.config.getoption("--update-goldens"))
