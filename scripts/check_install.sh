#!/usr/bin/env bash
# Installs build/transnormer into a folder that goes away again, and tries it there as on a machine
# that has neither this build nor .venv: both are hidden, the installed tree is read-only, and each
# library that is loaded must come with it or be the system's C and C++ runtime.
#   scripts/check_install.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[[ -x build/transnormer ]] || fail "build/transnormer is not there; run scripts/build.sh first"
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
prefix=$place/prefix
work=$place/work
mkdir -p "$work/data" "$work/configs"
cp configs/tiny.json "$work/configs/"
cp -r data/fixture "$work/data/"

say "Installing"
cmake --install build --prefix "$prefix" >/dev/null || fail "cmake --install failed (see above)"
for file in bin/transnormer share/man/man1/transnormer.1 \
  share/bash-completion/completions/transnormer share/zsh/site-functions/_transnormer; do
  [[ -s $prefix/$file ]] || fail "$file was not installed"
done
bash -n "$prefix/share/bash-completion/completions/transnormer" || fail "bash cannot read its completions"
say "Installed $(du -sh "$prefix" | cut -f1): $(find "$prefix/lib/transnormer" -name '*.so*' | wc -l) libraries"

# Mounts of one's own need root, or a kernel that lets anyone be root of a namespace.
hidden=()
for try in "unshare -m" "unshare -rm"; do
  if $try true 2>/dev/null; then
    read -ra hidden <<<"$try"
    break
  fi
done
((${#hidden[@]} > 0)) || say "The build cannot be hidden here (no unshare); only the loader is asked"

cat >"$place/try.sh" <<'TRY'
set -euo pipefail
prefix=$1 work=$2 hide=$3
if [[ $hide == yes ]]; then
  for folder in build .venv; do
    [[ ! -d $folder ]] || mount -t tmpfs tmpfs "$folder"
  done
  mount --bind "$prefix" "$prefix"
  mount -o remount,ro,bind "$prefix"
  ! touch "$prefix/bin/new" 2>/dev/null
fi
cd "$work"
run() {
  env -i HOME="$work" PATH=/usr/bin:/bin OMP_WAIT_POLICY=passive LD_DEBUG=libs \
    LD_DEBUG_OUTPUT="$work/loader" "$prefix/bin/transnormer" "$@" >answer 2>messages ||
    { echo "transnormer $*:"; cat messages; exit 1; }
}
run --version
run train configs/tiny.json --set train.steps=4 --set train.device=cpu
run eval runs/tiny --json --device cpu
run generate runs/tiny --prompt "a" --max-tokens 5 --device cpu
run inspect runs/tiny
run analyze runs/tiny --what maps --out pictures --device cpu
run tokenizer train configs/tiny.json --out pieces.model --set tokenizer.type=sentencepiece \
  --set tokenizer.vocab_size=100 --set tokenizer.byte_fallback=false
TRY
say "Trying it"
"${hidden[@]}" bash "$place/try.sh" "$prefix" "$work" "$( ((${#hidden[@]} > 0)) && echo yes || echo no)" ||
  fail "the installed program does not work by itself (see above)"

runtime='/(ld-linux[^/]*|lib(c|m|dl|pthread|rt|util|resolv|stdc\+\+|gcc_s))\.so[^/]*$'
loaded=$(sed -n 's/.*calling init: //p' "$work"/loader.* | sort -u)
[[ -n $loaded ]] || fail "the loader did not say what it loaded"
foreign=$(grep -v "^$prefix/" <<<"$loaded" | grep -Ev "$runtime" || true)
[[ -z $foreign ]] || fail "these libraries are not of the installed tree: "$'\n'"$foreign"
say "It needs nothing else: $(grep -c "^$prefix/" <<<"$loaded") libraries of its own were loaded"
