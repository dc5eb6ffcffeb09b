#!/usr/bin/env bash
# GPT-2's vocabulary of byte pairs (OpenAI, MIT license) into data/gpt2/gpt2.tiktoken, for
# tokenizer.type "bpe": from the network by pip, or from a copy of the archive. With the file there
# already it does nothing.
#   scripts/get_gpt2_bpe.sh [openai_whisper-20250625.tar.gz]
archive=${1:+$(realpath "$1")}
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

package=openai-whisper==20250625
digest=306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930
file=data/gpt2/gpt2.tiktoken

is_whole() {
  [[ -f $1 ]] && [[ $(sha256sum <"$1") == "$digest  -" ]]
}

if is_whole "$file"; then
  say "$file is there"
  exit
fi
[[ ! -e $file ]] || fail "$file is not GPT-2's vocabulary, or damaged; remove it and run this again"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [[ -z $archive ]]; then
  python=.venv/bin/python
  "$python" -m pip --version &>/dev/null || python=python3
  say "fetching $package with pip"
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$scratch" "$package" ||
    fail "pip could not fetch $package (see above); without network, fetch its archive from PyPI elsewhere and run: $0 ARCHIVE"
  archive=$(find "$scratch" -name 'openai*whisper*' -print -quit)
fi

# A wheel is a zip archive, a source distribution a tar archive.
python3 -I - "$archive" "$scratch/gpt2.tiktoken" <<'PYTHON' || fail "$archive: cannot be read (see above)"
import sys
import tarfile
import zipfile

archive, out = sys.argv[1:]
wanted = "whisper/assets/gpt2.tiktoken"
if zipfile.is_zipfile(archive):
    with zipfile.ZipFile(archive) as opened:
        found = [opened.read(name) for name in opened.namelist() if name.endswith(wanted)]
elif tarfile.is_tarfile(archive):
    with tarfile.open(archive) as opened:
        found = [opened.extractfile(name).read() for name in opened.getnames() if name.endswith(wanted)]
else:
    sys.exit("neither a wheel nor a source distribution")
if not found:
    sys.exit(f"holds no {wanted}")
with open(out, "wb") as file:
    file.write(found[0])
PYTHON
is_whole "$scratch/gpt2.tiktoken" ||
  fail "$archive: its gpt2.tiktoken is not the one expected (its SHA-256 is another)"
mkdir -p data/gpt2
mv "$scratch/gpt2.tiktoken" "$file"
say "$file: 50,256 tokens"
