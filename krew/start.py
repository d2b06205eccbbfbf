"""Starts Respread from the archive of the kubectl plugin, with the packages beside this file and no others.

It is `lib/__main__.py` there. The first argument is the name under which the plugin was called.
"""

import sys
from pathlib import Path

LIBRARY = Path(__file__).parent

sys.argv[:2] = sys.argv[1:2]
sys.path[:1] = [str(LIBRARY / (sys.implementation.cache_tag + sys.abiflags)), str(LIBRARY / "any")]

try:
    import msgspec  # noqa: F401 - it has compiled parts, as others have
except ImportError as error:
    sys.stderr.write(
        f"Error: the plugin's packages can't be loaded by {sys.executable}: {error}. They are made for the platform "
        "that krew has found, with the GNU C library on Linux. Set RESPREAD_PYTHON to the path of another Python, or "
        "install Respread with pip.\n"
    )
    sys.exit(2)

if Path(sys.argv[0]).name == "kubectl_complete-respread":
    from respread_cli.main import complete_for_kubectl as run
else:
    from respread_cli.main import main as run

run()
