"""Lets MkDocs read pages that are written for GitHub."""

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
LIST_AFTER_TEXT = re.compile(r"^((?![-\s]|\d+\. ).+\n)(?=- |\d+\. )", re.MULTILINE)


def on_config(config):
    config["nav"] = expand(config["nav"], Path(config["docs_dir"]))
    config["mdx_configs"].setdefault("toc", {})["slugify"] = anchor
    return config


def expand(nav, docs):
    """Replaces each pattern of the navigation by the pages that match it."""
    pages = []
    for entry in nav:
        if isinstance(entry, dict):
            pages += [{title: expand(below, docs) if isinstance(below, list) else below} for title, below in entry.items()]
        elif "*" in entry:
            pages += sorted(str(page.relative_to(docs)) for page in docs.glob(entry))
        else:
            pages.append(entry)
    return pages


def anchor(heading, separator):
    """Names a heading as GitHub does."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def on_files(files, config):
    """Leaves out the Go package that embeds the pages on problems."""
    for file in [file for file in files if file.src_path.endswith(".go")]:
        files.remove(file)
    return files


def on_page_markdown(markdown, page, config, files):
    """Adapts the text between code blocks."""

    def text(part):
        part = LINK.sub(lambda link: target(link, page, config, files), part)
        return LIST_AFTER_TEXT.sub(r"\1\n", part)

    out, end = [], 0
    for fence in FENCE.finditer(markdown):
        out += [text(markdown[end : fence.start()]), fence.group()]
        end = fence.end()
    return "".join(out + [text(markdown[end:])])


def target(link, page, config, files):
    """Leads a link to a file of the repository that is no page to GitHub."""
    path, heading = link.group(1), link.group(2) or ""
    inside = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_path), path))
    name = posixpath.normpath(posixpath.join("docs", inside))
    if "://" in path or files.get_file_from_path(inside) or not (ROOT / name).exists():
        return link.group()
    kind = "tree" if (ROOT / name).is_dir() else "blob"
    return f"]({config['repo_url'].rstrip('/')}/{kind}/main/{name}{heading})"
