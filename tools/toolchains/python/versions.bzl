"""The Python versions that the project supports: data, read by the extension, the rules and the wheels."""

PYTHON_VERSIONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]

# What a program runs with unless it asks for another; when it is not there, the newest that is.
PREFERRED_PYTHON = "3.11"

def repository_name(version):
    """The repository of a version's interpreter and headers."""
    return "python_" + version.replace(".", "_")
