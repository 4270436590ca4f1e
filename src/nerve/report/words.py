"""What was run, in words: paragraphs for a methods section, and what to cite."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from nerve.checks import listed
from nerve.evaluation.protocol_text import protocol_text
from nerve.evaluation.rows import SCOPES, SELF_SUPERVISED, SUPERVISED
from nerve.evaluation.sites import site_verdict
from nerve.protocol import Protocol
from nerve.report.results import Results


@dataclass(frozen=True)
class Citation:
    """A work to cite, as text and as BibTeX."""

    key: str
    text: str
    bibtex: str = ""

    @classmethod
    def of(cls, key: str) -> Citation:
        """A work of templates/citations.json."""
        fields = json.loads((files("nerve") / "report" / "templates" / "citations.json").read_text("utf-8"))[key]
        kind = fields.pop("kind")
        body = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
        authors = fields["author"].replace(" and others", " et al.").replace(" and ", ", ")
        year = f" ({fields['year']})." if "year" in fields else "."
        title = fields["title"].strip("{}")
        place = " {journal} {volume}, {pages}.".format_map(fields).replace("--", "–") if "journal" in fields else ""
        return cls(key, f"{authors}{year} {title}.{place}", f"@{kind}{{{key},\n{body}\n}}")


def methods_text(results: Results) -> list[str]:
    """Paragraphs on what was compared, what was trained on whom, and how each cohort was evaluated."""
    return [part for part in (_compared(results), _learned(results), *_protocols(results)) if part]


def seen(results: Results) -> list[str]:
    """A sentence per pretraining scope: which lines learned from whom, and in which cohorts."""
    if results.scores.empty or "scope" not in results.scores:
        return []
    places = results.scores.loc[results.scores["scope"] != "none", ["scope", "cohort", "line"]].drop_duplicates()
    sentences = []
    for scope, words in SCOPES.items():
        of_cohort = places[places["scope"] == scope].groupby("cohort", sort=False)["line"].agg(tuple).to_dict()
        for lines in dict.fromkeys(of_cohort.values()):
            where = [results.cohort_label(str(cohort)) for cohort, theirs in of_cohort.items() if theirs == lines]
            only = f" in {listed(where, most=20)}" if len(results.cohorts) > 1 else ""
            sentences.append(f"{words[0].upper()}{words[1:]} (scope {scope}){only}: {_named(results, lines)}.")
    return sentences


def site_notices(results: Results) -> list[str]:
    """A sentence per cohort and target whose best r lies, in good part, between sites."""
    if "r_within_site" not in results.scores:
        return []
    said = []
    for (cohort, target), part in results.mean_scores.groupby(["cohort", "target"], sort=False):
        best = part.sort_values("r", ascending=False).iloc[0]
        verdict = site_verdict(best["r"], best["r_within_site"])
        if "between" in verdict:
            name, r, inside = results.column_name(str(cohort), str(target)), best["r"], best["r_within_site"]
            line = results.label(best["line"])
            said.append(f"{name}: r = {r:.2f} of {line} is {inside:.2f} within sites: {verdict}.")
    return said


def run_text(config: Mapping[str, Any]) -> list[str]:
    """A paragraph on a single training run."""
    options = (config.get("parameters") or {}).get("options", {})
    data = config.get("data") or {}
    parcellation = (config.get("parcellation") or {}).get("name", "its parcellation")
    cohorts = f" of {listed(data['cohorts'], most=20)}" if data.get("cohorts") else ""
    who = f" on {data['n_training']:,} participants{cohorts}" if data.get("n_training") else ""
    who += f", with {data['n_validation']:,} more held out," if data.get("n_validation") else ""
    said = f"{config.get('method', 'The encoder')} was trained{who} in {parcellation}"
    view = options.get("view", "fc")
    said += f" on the {view} view" if isinstance(view, str) and view != "fc" else ""
    if "tokenizer" in options:
        said += f" with the {options['tokenizer']} tokenizer, {options.get('mask_ratio', 0):.0%} of the patches masked"
    if "epochs" in options:
        said += f", for {options['epochs']} epochs in batches of {options.get('batch_size')}"
    preset = (config.get("parameters") or {}).get("preset")
    said += f" (preset {preset}" if preset else " ("
    return [said + f"{', ' * bool(preset)}seed {(config.get('parameters') or {}).get('seed', 0)})."]


def citations(results: Results) -> list[Citation]:
    """What these results rest on: the paper of each method that is in them, the parcellation, the statistics."""
    about, methods = results.about, list(dict.fromkeys([*results.rows["method"], results.about.get("method", "")]))
    works = [Citation.of("nerve")] if "nerve" in methods else []
    theirs = about.get("citations") or {}
    works += [Citation(name, str(theirs[name])) for name in methods if theirs.get(name) and name != "nerve"]
    used = {
        "schaefer2018 yeo2011": "schaefer" in str(about.get("parcellation", "")),
        "he2020 benjamini1995": not results.is_run and len(results.scores),
        "johnson2007": any(protocol.get("combat") for protocol in about.get("protocols", {}).values()),
    }
    return works + [Citation.of(key) for keys, are in used.items() if are for key in keys.split()]


def blocks(markdown: str) -> list[str]:
    """Paragraphs of a Markdown text without its headings; a list stays with the words that lead to it.

    Examples
    --------
    >>> blocks("# How\\n\\nWe did.\\n\\nRows:\\n\\n- a\\n- b\\n\\n- c\\n")
    ['We did.', 'Rows:\\n- a\\n- b\\n- c']
    """
    found: list[str] = []
    for block in filter(None, (block.strip() for block in markdown.split("\n\n"))):
        if block.startswith("- ") and found:
            found[-1] += f"\n{block}"
        elif not block.startswith("#"):
            found.append(block)
    return found


def _compared(results: Results) -> str:
    lines, cohorts = list(results.lines.index), results.cohorts.values()
    said = f"We {'compared' if len(lines) > 1 else 'evaluated'} {_named(results, lines)}"
    said += f" on {listed((facts.label for facts in cohorts), most=20)}"
    regions = results.about.get("parcellation")
    said += f", in the region order of {regions}." if regions else "."
    simulated = [facts.label for facts in cohorts if facts.simulated]
    return said + (f" Simulated, with a known answer: {listed(simulated, most=20)}." if simulated else "")


def _named(results: Results, lines: Iterable[str]) -> str:
    """Labels, which may hold commas, as a list."""
    return "; ".join(map(results.label, lines))


def _learned(results: Results) -> str:
    """What was trained: view, preset and width of each line, on which pool and with which seeds."""
    lines = results.lines[results.lines["kind"].isin([SELF_SUPERVISED, SUPERVISED])]
    if lines.empty:
        return ""
    details = {str(line): _details(row) for line, row in lines.iterrows()}
    told = {line: f"{results.label(line)} ({said})" for line, said in details.items() if said}
    given = [told.pop(line) for line in list(told) if line.startswith("features-")]
    pool = [results.cohort_label(name) for name in results.about.get("pretrained_on", [])]
    seeds = results.about.get("seeds", [])
    said = f"Trained elsewhere: {'; '.join(given)}. " if given else ""
    said += f"Trained: {'; '.join(told.values())}." if told else ""
    if pool and SELF_SUPERVISED in set(lines["kind"]):
        said += f" Encoders were pretrained without labels on the pooled participants of {listed(pool, most=20)}."
    return (said + (f" Seed{'s' * (len(seeds) > 1)}: {listed(seeds)}." if seeds else "")).strip()


def _details(line: Any) -> str:
    width = f"{int(line['width'])} numbers per participant" if line["width"] else ""
    view = f"{line['view']} view" if line["kind"] == SELF_SUPERVISED and line["view"] else ""
    return ", ".join(filter(None, [f"preset {line['preset']}" if line["preset"] else "", view, width]))


def _protocols(results: Results) -> list[str]:
    """How each cohort was evaluated; what is the same for all is said once."""
    about = results.about
    told = {}
    for name, protocol in about.get("protocols", {}).items():
        scopes = dict(results.scores.loc[results.scores["cohort"] == name, ["row", "scope"]].itertuples(index=False))
        rows = results.rows.assign(scope=results.rows["row"].map(scopes).fillna(results.rows["scope"]))
        text = protocol_text(Protocol(**protocol), about["participants"][name], rows)
        told[name] = blocks(text)
    shared = set.intersection(*map(set, told.values())) if told else set()
    own = [f"{results.cohort_label(name)}: {block}" if len(told) > 1 else block
           for name, theirs in told.items() for block in theirs if block not in shared]  # fmt: skip
    return own + [block for block in next(iter(told.values()), []) if block in shared]
