"""Mistakes that a tired engineer makes, as changes of the text of one node of a module's syntax tree."""

import ast
import re
from collections import defaultdict
from functools import partial


def _both(kind, nodes, *pairs, form=r"\b{}$"):
    """Return rules that put either of two words in the place of the other."""
    return [(kind, nodes, form.format(re.escape(a)), b) for pair in pairs for a, b in (pair, pair[::-1])]


# Kind, node, what its text has, what is written instead.
_RULES = [
    *_both("comparison", ast.Compare, ("<", "<="), (">", ">="), ("==", "!="), form="(?<= ){}(?= )"),
    *_both("comparison", ast.Compare, ("<", ">"), ("<=", ">="), ("in", "not in"), form="(?<= )(?<!not ){}(?= )"),
    *_both("comparison", ast.Compare, ("is", "is not"), form="(?<= ){}(?= )(?! not)"),
    *_both("and for or", ast.BoolOp, ("and", "or"), form="(?<= ){}(?= )"),
    *_both("mean for median", ast.Attribute, ("mean", "median"), ("median_low", "median_high")),
    ("mean for median", ast.Attribute, "fmean$", "median"),
    *_both("min for max", (ast.Name, ast.Attribute), ("min", "max"), ("any", "all")),
    *_both("min for max", ast.Attribute, ("minimum", "maximum"), ("argmin", "argmax"), ("floor", "ceil")),
    *_both("first for last", ast.Attribute, ("first", "last"), ("partition", "rpartition"), ("head", "tail")),
    *_both("first for last", ast.Subscript, ("[0]", "[-1]"), form="{}$"),
    *_both("wrong key", ast.Attribute, ("mtime_ns", "ctime_ns"), ("low", "high"), ("start", "end"), form="{}$"),
    *_both("unit", (ast.Constant, ast.BinOp), ("1000000.0", "1 << 20"), ("10 ** 6", "1 << 20"), ("1000", "1024"),
           ("1000000000.0", "1000000.0"), ("10 ** 9", "10 ** 6"), ("1e-06", "0.001"), ("512", "4096"), form="^{}$"),
    ("unit", ast.BinOp, r"^((?!.*(?i:root|folder|path|home|parent|place|aside)).*) [*/] [\w.]+$", r"\1"),
    *_both("default value", ast.Constant, ("True", "False"), form="^{}$"),
    ("default value", ast.Constant, r"^\d+\.\d+$", r"2 * \g<0> + 1"),
    ("default value", ast.Call, r"(?<=\.get\()(.*), 0(\.0)?\)$", r"\1, 1)"),
    ("off by one", ast.Constant, r"^\d+$", r"\g<0> + 1"),
    ("off by one", ast.BinOp, r" [+-] 1$", ""),
    ("lower middle", ast.BinOp, r"^\((.*) - 1\) // 2$", r"\1 // 2"),
    ("lower middle", ast.BinOp, r"^(.*(?<! - 1\))) // 2$", r"(\1 - 1) // 2"),
    ("sorted order", ast.Call, r"^sorted\((?!.*reverse=)(.*)\)$", r"sorted(\1, reverse=True)"),
    ("sorted order", ast.Call, r"^(sorted\(.*), reverse=True\)$", r"\1)"),
    ("lost statement", ast.Expr, r"^(?!print|super)[\w.]+\((?s:.*)\)$", "pass"),
    ("lost statement", ast.AugAssign, r"^(?s:.*)$", "pass"),
    ("lost statement", ast.With, r"^with [^\n:]*lock[^\n:]*:(?=\n)", "if True:"),
    ("swallowed exception", ast.Raise, r"^(?s:.*)$", "pass"),
]  # fmt: skip


def mistakes(tree):
    """Return of each mistake in a module its kind, line, function, what becomes what, and what gives the source."""
    keys, places, made = defaultdict(dict), [(tree, tree, 0, "")], []
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            keys[ast.unparse(node.value)][repr(node.slice.value)] = None
    for node, above, line, function in places:  # which become more
        here = node.lineno if isinstance(node, ast.stmt) else line
        where = f" in `{ast.unparse(above)}`" if isinstance(node, ast.Constant | ast.Name) else ""
        for kind, text, wrong in _wrong(node, keys):
            change = " ".join(f"`{text}` → `{wrong}`{where}".split())[:240]
            made.append((kind, here, function, change, partial(_source, tree, node, wrong)))
        inside = f"{function}.{node.name}".lstrip(".") if isinstance(node, ast.FunctionDef | ast.ClassDef) else function
        parts = [
            value for name, value in ast.iter_fields(node) if name not in {"annotation", "returns", "decorator_list"}
        ]
        children = [child for part in parts for child in (part if isinstance(part, list) else [part])]
        places += [(child, node, here, inside) for child in children if isinstance(child, ast.AST)]
    return made


def _wrong(node, keys):
    """Yield kind, text and wrong text of what can be written in the place of a node."""
    rules = [rule for rule in _RULES if isinstance(node, rule[1])]
    text = ast.unparse(node) if rules else ""
    for kind, _, pattern, wrong in rules:
        for found in re.finditer(pattern, text):
            yield kind, text, text[: found.start()] + found.expand(wrong) + text[found.end() :]
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        base, own = ast.unparse(node.value), repr(node.slice.value)
        yield from (("wrong key", f"{base}[{own}]", f"{base}[{key}]") for key in keys[base] if key != own)


def _source(tree, node, wrong):
    """Return the source of a module with something else in the place of a node; raises SyntaxError for no Python."""
    new = ast.parse(wrong).body[0]
    new = new.value if isinstance(node, ast.expr) and isinstance(new, ast.Expr) else new
    visitor = ast.NodeTransformer()
    visitor.visit = lambda each: new if each is node else node if each is new else visitor.generic_visit(each)
    source = ast.unparse(visitor.visit(tree))
    visitor.visit(tree)  # and back
    return source
