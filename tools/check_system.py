"""What pip cannot install: Python, a C++ compiler, Java. Names what is missing and the remedy, before anything else.

Runs with the system's Python and nothing but its standard library.
"""

import os
import re
import shutil
import subprocess
import sys

JAVA = "install a Java 17 or newer runtime (Debian, Ubuntu: apt-get install openjdk-17-jre-headless)"


def problems() -> list:
    found = []
    if sys.version_info < (3, 10):
        found.append(
            "Python is %d.%d: Python 3.10 or newer is needed (make PYTHON=python3.11 …)" % sys.version_info[:2]
        )
    else:
        try:
            import ensurepip  # noqa: F401
            import venv  # noqa: F401
        except ImportError:
            found.append("Python lacks venv: install it (Debian, Ubuntu: apt-get install python3-venv)")
    if not any(shutil.which(name) for name in (os.environ.get("CXX", "c++"), "c++", "g++", "clang++")):
        found.append("no C++ compiler: install one (Debian, Ubuntu: apt-get install g++ python3-dev)")
    return found + java_problems()


def java_problems() -> list:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not java or not os.path.exists(java):
        return ["Java is missing%s: %s" % (" at JAVA_HOME=" + home if home else "", JAVA)]
    try:
        version = subprocess.run([java, "-version"], stderr=subprocess.PIPE, timeout=60).stderr.decode(
            "utf-8", "replace"
        )
        modules = subprocess.run([java, "--list-modules"], stdout=subprocess.PIPE, timeout=60).stdout.decode()
    except (OSError, subprocess.TimeoutExpired) as error:
        return ["%s cannot be run (%s): %s" % (java, error, JAVA)]
    match = re.search(r'version "(\d+)', version)
    if not match or int(match.group(1)) < 17:
        return ["%s is too old (%s): %s" % (java, version.splitlines()[0] if version else "version unknown", JAVA)]
    if "jdk.incubator.vector" not in modules:
        return ["%s lacks the module jdk.incubator.vector, which Spark 4.3 asks for: %s" % (java, JAVA)]
    return []


if __name__ == "__main__":
    missing = problems()
    for line in missing:
        print("missing: " + line, file=sys.stderr)
    sys.exit(2 if missing else 0)
