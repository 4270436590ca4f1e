#!/usr/bin/env bash
# Runs every step of containers/Dockerfile and containers/nerve.def in a clean Debian, without a container engine.
#   tools/try_container_recipe.sh            both recipes
#   tools/try_container_recipe.sh docker     one of them: docker or apptainer
# Debian 12 has the Python 3.11 of the image that the recipes begin with. debootstrap makes it in a temporary folder,
# which is removed at the end. The steps are read from the recipes: what is tried is what is written there.
# pip installs from where it installs on this machine: its configuration, the folders that this names and the
# certificates are lent to the clean system. Needs root and debootstrap.
set -euo pipefail
cd "$(dirname "$0")/.."
recipes=${1:-docker apptainer}
[ "$(id -u)" = 0 ] || { echo "try_container_recipe: needs root, for chroot" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "try_container_recipe: needs debootstrap (apt-get install debootstrap)" >&2; exit 1; }

work=$(mktemp -d)
mounted=()
release() {
  for place in "${mounted[@]}"; do umount "$place" 2>/dev/null || true; done
  # a folder that is still mounted is not removed: what lies behind it is not ours
  if grep -q " $work/" /proc/mounts; then
    echo "try_container_recipe: $work is still mounted, and left" >&2
  else
    rm -rf --one-file-system "$work"
  fi
}
trap release EXIT

step() { echo "== $*"; }

# in ROOT [USER]: run the command on standard input there, as in a layer of an image
in_root() {
  local root=$1 folder=$2 user=${3:-root} home=/root
  [ "$user" = root ] || home=/home/$user
  chroot --userspec="$user" "$root" /usr/bin/env -i HOME="$home" LANG=C.UTF-8 \
    PATH=/usr/local/python/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /bin/sh -euc "cd '$folder'; $4"
}

step "clean Debian 12 with its Python"
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$work/base" >"$work/debootstrap.log" \
  || { tail -20 "$work/debootstrap.log" >&2; exit 1; }
in_root "$work/base" / root "python3 -m venv /usr/local/python; python3 --version; pip --version"

# What this machine's pip is told, as a file. Folders that it names are lent below.
{ echo "[global]"; python3 -m pip config list | sed -n "s/^\(global\|:env:\)\.\([a-z-]*\)='\(.*\)'$/\2 = \3/p" | sort -u -t= -k1,1; } \
  >"$work/base/etc/pip.conf"
for file in /etc/resolv.conf /etc/hosts; do cp "$file" "$work/base$file"; done
cp -L --remove-destination /etc/ssl/certs/ca-certificates.crt "$work/base/etc/ssl/certs/"
folders=$(grep -oE '(^|[ /])/[A-Za-z0-9_./-]+' "$work/base/etc/pip.conf" | sed 's#^[ /]*/#/#' | cut -d/ -f1-3 | sort -u)

lend() {  # lend ROOT: folders of packages, /proc and /dev, each once
  local root=$1 folder
  for folder in /proc /dev /dev/shm $folders; do
    [ -d "$folder" ] || continue
    case "$folder" in /etc/*) continue ;; esac
    mkdir -p "$root$folder"
    mount --bind "$folder" "$root$folder"
    case "$folder" in /proc | /dev | /dev/shm) ;; *) mount -o remount,bind,ro "$root$folder" ;; esac
    mounted=("$root$folder" "${mounted[@]}")
  done
}

copy_into() {  # copy_into ROOT SOURCE... TARGET, as COPY and %files do: contents of a folder, or files
  local root=$1 target source
  shift
  target=${!#}
  while [ $# -gt 1 ]; do
    source=$1
    shift
    if [ -d "$source" ]; then
      mkdir -p "$root$target"
      cp -r "$source/." "$root$target/"
    elif [ "${target%/}" != "$target" ]; then
      mkdir -p "$root$target"
      cp "$source" "$root$target"
    else
      mkdir -p "$root$(dirname "$target")"
      cp "$source" "$root$target"
    fi
  done
}

# What a user does with an image: ask for help, then make a cohort and check it.
USE='nerve simulate cohort --subjects 30 --parcellation schaefer100-17 --timepoints 100 && nerve check cohort'

try_docker() {
  local root=$work/docker folder=/ user=root line
  cp -a "$work/base" "$root"
  lend "$root"
  while IFS= read -r line; do
    case "$line" in
      "#"* | "" | ARG* | FROM*) continue ;;
    esac
    step "$line"
    case "$line" in
      COPY*) read -ra words <<<"${line#COPY }"; copy_into "$root" "${words[@]}" ;;
      RUN*) in_root "$root" "$folder" "$user" "${line#RUN }" ;;
      WORKDIR*) folder=${line#WORKDIR }; mkdir -p "$root$folder" ;;
      USER*) user=${line#USER } ;;
      ENTRYPOINT*) in_root "$root" "$folder" "$user" "$(sed 's/[][",]/ /g' <<<"${line#ENTRYPOINT }") --help >/dev/null" ;;
      *) echo "try_container_recipe: unknown instruction" >&2; return 1 ;;
    esac
  done <containers/Dockerfile
  step "as $user in $folder: $USE"
  in_root "$root" "$folder" "$user" "id -un; $USE"
}

try_apptainer() {
  local root=$work/apptainer section="" line post="" test=""
  cp -a "$work/base" "$root"
  lend "$root"
  while IFS= read -r line; do
    case "$line" in
      %*) section=${line#%}; continue ;;
      "#"* | "" | Bootstrap:* | From:*) continue ;;
    esac
    case "$section" in
      files) step "%files $line"; read -ra words <<<"$line"; copy_into "$root" "${words[@]}" ;;
      post) post+="${line#    }"$'\n' ;;
      test) test+="${line#    }"$'\n' ;;
      runscript) [ "${line#    }" = 'exec nerve-bids "$@"' ] || { echo "try_container_recipe: unknown runscript" >&2; return 1; } ;;
    esac
  done <containers/nerve.def
  step "%post"
  printf '%s' "$post"
  in_root "$root" / root "$post"
  step "%test"
  printf '%s' "$test"
  in_root "$root" / root "$test" | tail -1
  mkdir -p "$root/work"
  step "in /work: $USE"
  in_root "$root" /work root "$USE"
}

for recipe in $recipes; do
  step "recipe: $recipe"
  "try_$recipe"
done
step "every step of the recipes ran: $recipes"
