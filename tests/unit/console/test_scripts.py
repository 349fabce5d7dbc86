"""No data gets into what a browser evaluates: scripts, HTML, props and styles of the console.

A rule over the source, as no test has every page with every name: what the framework evaluates is a literal or
a constant, and HTML comes from templates that escape. ``app/console/browser.py`` hands both on.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from app.console.charts import css
from app.console.fragments import render

CONSOLE = Path(__file__).parents[3] / "app" / "console"
EXEMPT = {"browser.py": "the way itself: its parameters are HTML of templates, constant scripts and numbers"}
WAYS_IN = {
    "browser.py": {"add_head_html", "html", "set_content", "run_javascript", "style", "Markup"},
    # The package's own style sheet, a file.
    "frame.py": {"add_css"},
    # What a template was made into.
    "fragments.py": {"Markup"},
}
"""Functions that take HTML, scripts or styles, by the only files that may call them."""

CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
LITERAL_ONLY = {"props", "run_method", "run_grid_method", "run_row_method", "run_chart_method", "call"}
"""The first argument is read as code or as attributes."""
FORBIDDEN = {
    *("html", "set_content", "run_javascript", "style", "add_css", "Markup"),
    *("add_head_html", "add_body_html", "add_sass", "add_scss", "add_slot", "markdown", "mermaid"),
    *("interactive_image", "restructured_text", "editor", "chat_message", "get_computed_prop", "vue", "eval"),
}


def is_constant(node: ast.expr) -> bool:
    """A literal, a constant of a module, or a choice between such."""
    if isinstance(node, ast.IfExp):
        return is_constant(node.body) and is_constant(node.orelse)
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return isinstance(node, ast.Constant) or bool(CONSTANT.fullmatch(name))


def is_put_together(key: ast.expr | None) -> bool:
    """Check that a key is put together and might turn out to begin with a colon."""
    first = key.values[0] if isinstance(key, ast.JoinedStr) else None
    return first is not None and not (isinstance(first, ast.Constant) and not str(first.value).startswith(":"))


def is_evaluated(key: ast.expr | None) -> bool:
    """Check that the browser evaluates the value of the key."""
    return isinstance(key, ast.Constant) and str(key.value).startswith(":")


def is_colour(node: ast.expr) -> bool:
    """``css`` takes nothing but names of the style sheet's colours."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "css"


def called(node: ast.Call) -> tuple[str, bool]:
    """The name of the function, and whether it is asked of something."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr, True
    return (node.func.id, False) if isinstance(node.func, ast.Name) else ("", False)


def faults_of_call(node: ast.Call, file: str) -> list[str]:
    name, is_method = called(node)
    found = []
    if name in FORBIDDEN:
        # Our own ``html`` takes what a template made, which mypy checks.
        allowed = name in WAYS_IN.get(file, ()) or (name == "html" and not is_method)
        found += [] if allowed else [f"{name}() is called in browser.py alone"]
    if name == "link" and is_method:
        found.append("link() of the framework, whose address might be a script")
    keywords = {each.arg: each.value for each in node.keywords}
    given = [*node.args[:1], *(keywords[each] for each in ("add", "method_name") if each in keywords)]
    if name in LITERAL_ONLY and file not in EXEMPT and not all(map(is_constant, given)):
        found.append(f"{name}() with something else than a literal")
    scripts = [keywords[each] for each in ("js_handler", "html_columns") if each in keywords]
    return found + ["a script that is no literal" for each in scripts if not is_constant(each)]


def faults_of_dict(node: ast.Dict) -> list[str]:
    found = ["a key that might begin with a colon" for key in node.keys if is_put_together(key)]
    evaluated = [value for key, value in zip(node.keys, node.values, strict=True) if is_evaluated(key)]
    open_to_data = [each for each in evaluated if not is_constant(each) and not is_colour(each)]
    return found + ["a key with a colon and no literal" for _ in open_to_data]


def faults_of_prop(node: ast.Subscript) -> list[str]:
    if ast.unparse(node.value).rpartition(".")[2] != "props":
        return []
    is_name = isinstance(node.slice, ast.Constant) and not str(node.slice.value).startswith(":")
    return [] if is_name else ["a prop whose name is no literal, or is evaluated"]


def faults(source: str, file: str = "") -> list[str]:
    """Places in a source that would have data evaluated, each with its line."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        causes: list[str] = []
        if isinstance(node, ast.Call):
            causes = faults_of_call(node, file)
        elif isinstance(node, ast.Dict):
            causes = faults_of_dict(node)
        elif isinstance(node, ast.Subscript):
            causes = faults_of_prop(node)
        found += [f"line {getattr(node, 'lineno', 0)}: {cause}" for cause in causes]
    return found


@pytest.mark.parametrize("path", sorted(CONSOLE.glob("*.py")), ids=lambda path: path.stem)
def test_nothing_but_literals_is_evaluated(path: Path) -> None:
    assert faults(path.read_text(), path.name) == []


@pytest.mark.parametrize(
    "source",
    [
        """dialog.props(f'aria-label="{title}"')""",
        "dialog.props('label=' + title)",
        "dialog.props('label=%s' % title)",
        "dialog.props('label={}'.format(title))",
        "dialog.props(title)",
        "dialog.props(add=title)",
        "dialog.props[name] = 1",
        "dialog.props[':label'] = title",
        "ui.html(title)",
        "ui.markdown(title)",
        "place.set_content(render('title', title=title))",
        "Markup(title)",
        "ui.run_javascript(f'go({url})')",
        "call(f'go({url})')",
        "call(script.replace('URL', url))",
        "ui.add_head_html(title)",
        "grid.run_grid_method(f'({title})')",
        "button.on('click', js_handler=f'() => go({url})')",
        "options = {':formatter': f'() => {title}'}",
        "options = {':formatter': tooltip}",
        "options = {f':{name}': '1'}",
        "options = {f'{name}': 'alert(1)'}",
        "chart.style(f'width: {width}')",
        "ui.link(name, url)",
    ],
)
def test_the_rule_finds_what_it_is_for(source: str) -> None:
    assert len(faults(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "dialog.props('persistent')",
        "dialog.props('flat' if quiet else 'unelevated')",
        "dialog.props['aria-label'] = title",
        "html(render('title', title=title))",
        "call(_PATCH, chart.id, cells)",
        "call('(url) => { location.href = url; }', url)",
        "options = {':color': css('--ink'), 'data': names, f'c{at}': value}",
        "options = {':formatter': _TOOLTIP}",
        "button.on('click', js_handler=_TOGGLE_THEME)",
    ],
)
def test_the_rule_lets_pass_what_is_safe(source: str) -> None:
    assert faults(source) == []


@pytest.mark.parametrize("name", ["--ink'); alert(1); ('", "ink", "--", "--Ink", "--ink\n"])
def test_a_colour_is_nothing_but_its_name(name: str) -> None:
    with pytest.raises(ValueError, match="not a property of the style sheet"):
        css(name)


@pytest.mark.parametrize("path", sorted(CONSOLE.glob("templates/*.html")), ids=lambda path: path.stem)
def test_templates_escape_what_they_are_given(path: Path) -> None:
    """No filter or block that turns escaping off, no script, and what is filled into an attribute is quoted."""
    text = path.read_text()
    assert not re.search(r"\|\s*safe\b|autoescape|<script|\bon\w+\s*=|javascript:", text)
    assert not re.search(r"<[^<>]*=\s*\{\{", text)
    # A style takes numbers, in percent, and nothing else.
    styles = re.findall(r'style="([^"]*)"', text)
    assert [each for each in styles if not re.fullmatch(r"width:\{\{ [^{}|]*width[^{}|]* \}\}%", each)] == []


def test_what_a_template_is_given_is_text() -> None:
    made = render("title", title='<b onclick="x">', note="'&")
    assert "&lt;b onclick=&#34;x&#34;&gt;" in made
    assert "&#39;&amp;" in made
