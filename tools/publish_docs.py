"""Put a built site into the folder of its version, and print the versions of the site.

python tools/publish_docs.py docs/_build/html site v0.1.0

`site` is a checkout of the branch that the web server shows, or any folder. Beside one folder per version it gets
versions.json, which the list on each page reads (docs/_static/versions.js), and an index.html that leads to the newest
release, or to `dev` before the first. The branch main is published as `dev`, the tag v0.1.0 as `0.1.0`.
"""

import argparse
import json
import shutil
from pathlib import Path

from packaging.version import InvalidVersion, Version

DEV = "dev"
FRONT = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>nerve</title>
<meta http-equiv="refresh" content="0; url={version}/index.html">
<a href="{version}/index.html">Documentation of nerve {version}</a>
</html>
"""


def folder_name(ref: str) -> str:
    """The folder of a branch or a tag: dev, or the version."""
    if ref in ("main", DEV):
        return DEV
    try:
        return str(Version(ref.removeprefix("v")))
    except InvalidVersion:
        raise SystemExit(f"{ref}: expected main, dev or a version such as v0.1.0.") from None


def published(site: Path) -> list[str]:
    """The versions of a site, the newest first; dev last."""
    names = [path.parent.name for path in site.glob("*/index.html")]
    releases = []
    for name in names:
        try:
            releases.append(Version(name))
        except InvalidVersion:
            continue
    ordered = [str(version) for version in sorted(releases, reverse=True)]
    return [*ordered, DEV] if DEV in names else ordered


def publish(built: Path, site: Path, ref: str) -> list[str]:
    """Copy a built site to its folder; returns all versions that the site then has."""
    if not (built / "index.html").is_file():
        raise SystemExit(f"{built}: there is no index.html. Run `make docs` first.")
    folder = site / folder_name(ref)
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(built, folder, ignore=shutil.ignore_patterns(".doctrees", ".buildinfo"))
    versions = published(site)
    (site / "versions.json").write_text(json.dumps(versions) + "\n", encoding="utf-8")
    (site / "index.html").write_text(FRONT.format(version=versions[0]), encoding="utf-8")
    (site / ".nojekyll").touch()  # folders that begin with an underscore are shown too
    return versions


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("built", type=Path, help="what `make docs` made")
    parser.add_argument("site", type=Path, help="the folder that is shown")
    parser.add_argument("ref", help="main, dev, or a tag such as v0.1.0")
    arguments = parser.parse_args()
    versions = publish(arguments.built, arguments.site, arguments.ref)
    print(", ".join(versions))


if __name__ == "__main__":
    main()
