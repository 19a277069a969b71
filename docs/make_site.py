"""Builds the documentation site from the pages of this repository: `make docs`.

    python docs/make_site.py out/site

Pages of the repository's root become pages of the site. A link to a file that is no page keeps its
words and loses its link. A link that leads nowhere fails the build.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
FROM_ROOT = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder) / "docs"
        shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        (pages / "README.md").rename(pages / "contents.md")
        for name in FROM_ROOT:
            shutil.copy(ROOT / name, pages / _site_name(ROOT / name).name)
        for page in sorted(pages.rglob("*.md")):
            source = _source(page.relative_to(pages))
            page.write_text(_linked(page.read_text(), source))
        shutil.copy(ROOT / "mkdocs.yml", folder)
        building = ["mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out.resolve())]
        subprocess.run([sys.executable, "-m", *building], cwd=folder, check=True)


def _site_name(file: Path) -> Path:
    """Where a page of the repository is on the site; the front page is its index."""
    if file == ROOT / "README.md":
        return Path("index.md")
    if file == ROOT / "docs" / "README.md":
        return Path("contents.md")
    if file.is_relative_to(ROOT / "docs"):
        return file.relative_to(ROOT / "docs")
    return Path(file.name.lower()) if file.parent == ROOT else Path()


def _source(page: Path) -> Path:
    """The file that a page of the site was made of."""
    for name in FROM_ROOT:
        if page == _site_name(ROOT / name):
            return ROOT / name
    return ROOT / "docs" / ("README.md" if page == Path("contents.md") else page)


def _linked(text: str, source: Path) -> str:
    """The text of `source` with the links of the site."""
    here = _site_name(source)

    def link(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        path, hash_, part = target.partition("#")
        if not path or "://" in path:
            return found[0]
        file = (source.parent / path).resolve()
        if file == ROOT / "docs" or file == ROOT / "docs" / "adr":
            file = ROOT / "docs" / "README.md"
        is_shown = file in [ROOT / name for name in FROM_ROOT] or (
            file.is_relative_to(ROOT / "docs") and file.suffix in (".md", ".svg", ".png")
        )
        if not is_shown:
            return found[0] if mark else words
        up = "../" * (len(here.parts) - 1)
        return f"{mark}[{_linked(words, source)}]({up}{_site_name(file)}{hash_}{part})"

    return LINK.sub(link, text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
