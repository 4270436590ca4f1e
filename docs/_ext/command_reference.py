"""The directives `nerve-commands` and `nerve-experiment-file`: options and settings, read from the program itself."""

import typer
from docutils import nodes
from docutils.parsers.rst import Directive

from nerve.cli import app as program
from nerve.evaluation.protocol import FIELDS, Protocol
from nerve.experiments import config


def commands_of(command, path=("nerve",)):
    """Every command that can be run, with the words that run it, in the order of `nerve --help`."""
    children = getattr(command, "commands", None)
    if children is None:
        return [(" ".join(path), command)]
    commands = []
    for name, child in children.items():
        commands += commands_of(child, (*path, name))
    return commands


class Commands(Directive):
    """One section per command: what it does, an example, its options."""

    def run(self):
        """Sphinx calls this."""
        return [
            _section(words, command)
            for words, command in commands_of(typer.main.get_command(program))
        ]


def _section(words, command):
    """The section of one command."""
    section = nodes.section(ids=[words.replace(" ", "-")], names=[words])
    section += nodes.title(text=words)
    for paragraph in (command.help or "").split("\n\n"):
        section += _paragraph(" ".join(paragraph.split()))
    described = [
        (_name(parameter), [parameter.help, _default(parameter)])
        for parameter in command.params
        if parameter.name != "help"
    ]
    if described:
        section += _definitions(described)
    return section


def _definitions(described):
    """A list of names, each with sentences that describe it."""
    definitions = nodes.definition_list()
    for name, sentences in described:
        term = nodes.term("", "", nodes.literal(text=name))
        meaning = nodes.definition("", _paragraph(" ".join(filter(None, sentences))))
        definitions += nodes.definition_list_item("", term, meaning)
    return definitions


def _name(parameter):
    if parameter.param_type_name == "argument":
        return parameter.name.upper() + ("..." if parameter.nargs == -1 else "")
    return ", ".join([*parameter.opts, *parameter.secondary_opts])


def _default(parameter):
    if parameter.required:
        return "Needed." if parameter.param_type_name == "option" else ""
    if parameter.default is None or parameter.default == "" or isinstance(parameter.default, bool):
        return ""
    return f"Default: `{parameter.default}`."


def _paragraph(text):
    """A paragraph in which text between backticks is literal."""
    paragraph = nodes.paragraph()
    for number, part in enumerate(text.split("`")):
        is_literal = number % 2 == 1
        paragraph += nodes.literal(text=part) if is_literal else nodes.Text(part)
    return paragraph


PARTS = {
    "the file": config.ExperimentConfig,
    "cohorts, by name": config.CohortConfig,
    "methods, a list": config.MethodConfig,
    "protocol": Protocol,
    "slurm": config.SlurmConfig,
}


class ExperimentFile(Directive):
    """One section per part of the file: its settings, what they mean and their defaults."""

    def run(self):
        """Sphinx calls this."""
        return [_part(title, model) for title, model in PARTS.items()]


def _part(title, model):
    """The section of one part of the file."""
    section = nodes.section(ids=[title.split(",")[0].replace(" ", "-")], names=[title])
    section += nodes.title(text=title[0].upper() + title[1:])
    section += _paragraph(" ".join(model.__doc__.split("\n\n    Examples")[0].split()))
    section += _definitions(_fields(model))
    return section


def _fields(model):
    """The settings of a part, each with its meaning and its default."""
    if model is Protocol:
        values = {name: field.default for name, field in FIELDS.items()} | config.PAPER_PROTOCOL
        return [
            (name, [field.metadata["help"], f"Default: `{values[name]}`."])
            for name, field in FIELDS.items()
        ]
    return [
        (name, [field.description, _default_of(field)])
        for name, field in model.model_fields.items()
    ]


def _default_of(field):
    if field.is_required():
        return "Needed."
    value = field.get_default(call_default_factory=True)
    if value is None or value == "" or hasattr(value, "model_fields"):
        return ""
    return f"Default: `{value}`."


def setup(app):
    """Registered by Sphinx."""
    app.add_directive("nerve-commands", Commands)
    app.add_directive("nerve-experiment-file", ExperimentFile)
    return {"parallel_read_safe": True}
