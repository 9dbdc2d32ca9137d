"""What the tests of the command line share."""

import pytest

from eqsat import cli


@pytest.fixture
def run(capsys):
    """Runs the command line: its exit code, what it prints, and its error."""

    def call(*arguments):
        code = cli.run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
