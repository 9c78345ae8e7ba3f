"""What is executed of a notebook that was handed in: the cells of its exercises, and of the other
cells the statements that these need.

A lesson's notebook trains and measures for minutes, and hardly any of it decides what a checker
says. So a statement runs if an exercise's cell, or another statement that runs, uses a name that it
binds. That brings along a reader's helpers, wherever they stand, and the lines with which a lesson
uses the course's function instead of a wrong one.
"""

import ast
import builtins
import re
import symtable
from collections.abc import Iterable
from dataclasses import dataclass, field

from IPython.core.inputtransformer2 import TransformerManager

from .lessons import NAMED_CHECKER, checker_calls, name_called, tagged

TIMED = re.compile(r"^(?:%%(?:time|capture)\b.*|%time +)", re.M)
DEFINITE = (
    ast.Assign,
    ast.AnnAssign,
    ast.Import,
    ast.ImportFrom,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
)
# Functions and methods by which a statement binds names that it does not show.
UNSEEN = {"exec", "globals", "setattr", "vars", "update_wrapper"}
BUILTINS = set(vars(builtins))


@dataclass
class Statement:
    """A statement at the top of a code cell.

    It `binds` names, `changes` what names stand for, `uses` names, and some of them `later`, in the
    functions that it defines. `readers`: the lesson does not have it. `exercise`: its cell is an
    exercise's. `broken`: its cell is no Python, and it raises what is wrong there.
    """

    cell: int
    node: ast.stmt
    readers: bool
    exercise: bool
    checkers: tuple[str, ...]
    broken: bool = False
    binds: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)
    uses: set[str] = field(default_factory=set)
    later: set[str] = field(default_factory=set)

    def __post_init__(self):
        """Read the names off the statement."""
        if any(isinstance(part, ast.alias) and part.name == "*" for part in ast.walk(self.node)):
            self.binds.add("*")
            return
        tables = [symtable.symtable(ast.unparse(self.node), "cell", "exec")]
        for table in tables:
            tables += table.get_children()
            top = table.get_type() == "module"
            for symbol in table.get_symbols():
                if not (top or symbol.is_global()):
                    continue
                if symbol.is_assigned() or symbol.is_imported() or top and symbol.is_namespace():
                    self.binds.add(symbol.get_name())
                if symbol.is_referenced():
                    (self.uses if top else self.later).add(symbol.get_name())
        for part in ast.walk(self.node):  # x.y = ..., x[y] = ...
            if isinstance(part, (ast.Attribute, ast.Subscript)):
                if not isinstance(part.ctx, ast.Load):
                    self.changes.add(root(part))
        call = self.node.value if isinstance(self.node, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):  # x.append(y)
            if self.readers or root(call) == "torch":  # a lesson's own calls show things
                self.changes.add(root(call))

    @property
    def step(self) -> str:
        """Return the cell and the line, for a person."""
        return f"cell {self.cell}, line {self.node.lineno}"

    @property
    def always(self) -> bool:
        """Return whether it runs whatever is used: an exercise's, one that sets torch up, and a
        reader's that may bind any name."""
        sets_up = self.uses == self.changes == {"torch"} and isinstance(self.node, ast.Expr)
        any_name = "*" in self.binds or self.uses & UNSEEN
        return bool(self.exercise or sets_up or self.readers and any_name)


def root(node: ast.expr) -> str:
    """Return the name at the root of x.y[z](...), "" if there is none."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return getattr(node, "id", "")


def python(source: str) -> str:
    """Return a cell's source as Python, its lines in their places. Raise SyntaxError."""
    text = TransformerManager().transform_cell(TIMED.sub("", source).lstrip("\n") or "\n")
    ast.parse(text)
    return text


def statements(cells: Iterable, lesson: frozenset[str]) -> list[Statement]:
    """Return the statements of code cells; `lesson` has those that are the lesson's (ast.dump)."""
    found = []
    for number, cell in enumerate(cells, 1):
        checkers, broken = tuple(dict.fromkeys(NAMED_CHECKER.findall(cell.source))), False
        try:
            nodes = ast.parse(python(cell.source)).body
        except SyntaxError as error:
            said, broken = f"line {error.lineno}: {error.msg}", True
            nodes = ast.parse(f"raise SyntaxError({said!r})").body
        exercise = bool(checkers) or broken and tagged(cell, "exercise")
        for node in nodes:
            called = tuple(name_called(call) for call in checker_calls(node))
            of_lesson = ast.dump(node) in lesson
            found.append(
                Statement(
                    number, node, not of_lesson, exercise, checkers if broken else called, broken
                )
            )
    return [one for one in found if "get_ipython" not in one.uses]  # %matplotlib, !ls


def bindings(earlier: list[Statement], name: str) -> set[int]:
    """Return which of the statements before a use of a name decide what it stands for there."""
    found = set()
    for at in reversed(range(len(earlier))):
        if name in earlier[at].binds or name in earlier[at].changes:
            found.add(at)
        if name in earlier[at].binds and isinstance(earlier[at].node, DEFINITE):
            break
    return found


def needed(program: list[Statement], asked: set[str] = frozenset()) -> list[Statement]:
    """Return the statements that run, in their order: those of exercises, those that bind the names
    `asked` for at the end, and what these need."""
    ends = set().union(*(bindings(program, name) for name in asked))
    ends |= {at for at, one in enumerate(program) if one.exercise}
    program = program[: max(ends, default=-1) + 1]
    imported = {
        name
        for one in program
        if isinstance(one.node, (ast.Import, ast.ImportFrom))
        for name in one.binds
    }
    chosen, seen, wanted = set(ends), set(), set()
    for at, one in enumerate(program):
        changes_module = one.readers and one.changes & imported  # torch.add = ...
        if one.always or changes_module and not isinstance(one.node, ast.Expr):
            chosen.add(at)
    while chosen - seen:
        at = (chosen - seen).pop()
        seen.add(at)
        wanted |= program[at].uses | program[at].later
        for name in program[at].uses:
            chosen |= bindings(program[:at], name)
        for name in program[at].later:  # the function may be called after any of them
            chosen |= {
                other for other, one in enumerate(program) if name in one.binds | one.changes
            }
        if not chosen - seen:  # a reader's calls may change what they are given
            chosen |= {
                other
                for other, one in enumerate(program)
                if one.readers and isinstance(one.node, ast.Expr) and one.uses & wanted - BUILTINS
            }
    return [program[at] for at in sorted(chosen)]
