"""What a winnow binary says of itself."""
import json
import shlex
import subprocess


def read_build(winnow):
    """Its version and commit."""
    words = shlex.split("eval kld --data builtin --lengths 32 --samples 1 --chunks 1 -q --json -")
    return json.loads(subprocess.run([str(winnow), *words], stdout=subprocess.PIPE, check=True).stdout)["winnow"]
