#!/usr/bin/env bash
# Makes an environment of its own with Brainmarks and this checkout of nerve, for tests of the plugin and for its page.
#   tools/brainmarks_environment.sh [FOLDER]     .venv-brainmarks by default
# Packages come from where pip installs from on this machine, and from nowhere else. Brainmarks 0.1.1 asks for
# setuptools<67 and torch, as nerve is tested with it, for setuptools>=77: the two cannot be resolved together. Neither needs
# setuptools at run time here, so Brainmarks itself is installed without its dependencies, and these from the list.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-.venv-brainmarks}
if [ -e "$folder" ] && [ ! -e "$folder/pyvenv.cfg" ]; then
  echo "brainmarks_environment: $folder exists and is no environment" >&2
  exit 1
fi
pins=tools/brainmarks_constraints.txt
"${PYTHON:-python3}" -m venv "$folder"
pip=("$folder/bin/pip" --disable-pip-version-check install --quiet --constraint "$pins")
# first and alone, so that a CPU build is taken where one is offered
"${pip[@]}" torch
"${pip[@]}" "cloudpathlib[s3]" datasets einops filelock fsspec gdown huggingface_hub matplotlib nibabel nilearn numpy \
  omegaconf pandas peft pycortex pytest s3fs scikit-learn scipy tabulate templateflow tqdm wandb
"${pip[@]}" --no-deps brainmarks
"${pip[@]}" --editable .
"$folder/bin/python" -c "from brainmarks.models.registry import list_models; print(*list_models())"
