# SPDX-License-Identifier: MIT
"""Packs files into a tar archive that has the same bytes whenever and wherever it is made.

    archive.py MANIFEST.json ARCHIVE.tar

MANIFEST.json maps each place in the archive to a file, or to a folder with all that is in it.
"""

import json
import os
import sys
import tarfile


def list_files(place, path):
    """(place, path) of the file, or of each file in the folder; caches of bytecode are left out."""
    if not os.path.isdir(path):
        yield place, path
        return
    for name in os.listdir(path):
        if name != "__pycache__":
            yield from list_files(f"{place}/{name}", os.path.join(path, name))


def add(archive, place, path):
    path = os.path.realpath(path)  # Inputs of an action are links.
    entry = tarfile.TarInfo(place)
    entry.size = os.path.getsize(path)
    entry.mode = 0o755 if os.access(path, os.X_OK) and not path.endswith(".py") else 0o644
    with open(path, "rb") as file:
        archive.addfile(entry, file)


def main():
    manifest, output = sys.argv[1:]
    with open(manifest, encoding="utf-8") as file:
        places = json.load(file)
    files = {}
    for place, path in places.items():
        files.update(list_files(place, path))
    with tarfile.open(output, "w", format=tarfile.USTAR_FORMAT) as archive:
        for place in sorted(files):
            add(archive, place, files[place])


if __name__ == "__main__":
    main()
