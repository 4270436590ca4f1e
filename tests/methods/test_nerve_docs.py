"""The pages on pretraining say what the code does."""

import inspect
import re
from pathlib import Path

import nerve
from nerve.core import count_parameters
from nerve.core.patching import Patching
from nerve.methods.parameters import parameter_descriptions

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_setting_is_on_the_page_with_its_default_and_meaning():
    page = (DOCS / "howto" / "pretrain.md").read_text()
    defaults = nerve.NERVE().get_params()
    descriptions = parameter_descriptions(nerve.NERVE)
    assert list(descriptions) == list(inspect.signature(nerve.NERVE).parameters)
    for name, meaning in descriptions.items():
        default = "none" if defaults[name] is None else str(defaults[name])
        assert f"| `{name}` | {default} | {meaning} |" in page
    assert all(f"`{preset}`" in page for preset in nerve.NERVE.presets)


def test_the_parameter_table_is_what_the_code_counts():
    page = (DOCS / "reference" / "parameters.md").read_text()
    for name in ("schaefer100-17", "schaefer400-17", "schaefer400-7", "schaefer1000-17"):
        patching = Patching.from_parcellation(nerve.load_parcellation(name))
        for kind, tokenizer, total in re.findall(
            rf"\| {name} \| \d+ \| (\w+) \| ([\d,]+) \|.*\| ([\d,]+) \|", page
        ):
            assert int(tokenizer.replace(",", "")) == count_parameters(patching, kind)["tokenizer"]
            assert int(total.replace(",", "")) == count_parameters(patching, kind)["total"]
