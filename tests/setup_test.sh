#!/usr/bin/env bash
# What tools/setup.sh thinks of a .venv that was moved, half filled or made elsewhere. Takes the project's .venv, of which
# links are made, and a folder to work in; needs `tools/setup.sh test`, no network.
set -euo pipefail
venv=$(realpath "$1")
work=$2
rm -rf "$work"
mkdir -p "$work"
cp -r "$(dirname "$0")/../tools" "$work/tools"
failed=0
# expect NAME WANTED GOT: WANTED is a pattern of bash.
expect() { [[ $3 == $2 ]] || { echo "FAILED: $1: expected '$2', got '$3'"; failed=1; }; }

# shellcheck source=/dev/null
source "$work/tools/setup.sh"
says() { if is_current build; then echo current; else echo incomplete; fi; }

# Links to everything; folders of links where something is changed here. pip as if it had been installed here.
folder_of_links() {
  rm -f ".venv${1:+/$1}"
  mkdir ".venv/$1"
  ln -s "$venv/$1"/* ".venv/$1/"
}
ln -s "$venv" .venv
python_lib=lib/$(basename "$venv"/lib/python3.*)
for name in "" bin lib "$python_lib" "$python_lib/site-packages" "$python_lib/site-packages/pyarrow-26.0.1.dist-info" \
  "$python_lib/site-packages/torch" "$python_lib/site-packages/torch/lib"; do
  folder_of_links "$name"
done
sed -i "1s|^#!.*|#!$PWD/.venv/bin/python3|" .venv/bin/pip
folder=$(site)

expect "a whole one" "" "$(venv_fault)$(missing_wheels build)"
rm -f .venv/build.stamp
expect "no stamp" incomplete "$(says)"
touch .venv/build.stamp
expect "a stamp and all wheels" current "$(says)"
rm "$folder/pyarrow-26.0.1.dist-info/RECORD"
expect "a wheel that was not finished" "pyarrow==26.0.1" "$(missing_wheels build)"
expect "a stamp without all wheels" incomplete "$(says)"
rm "$folder/torch/lib/libtorch_cpu.so"
expect "a library that was removed" "*libtorch_cpu.so" "$(missing_wheels build)"
cp -s "$venv/lib/"python3.*/site-packages/torch/lib/libtorch_cpu.so "$folder/torch/lib/"

sed -i "1s|^#!.*|#!$venv/bin/python3|" .venv/bin/pip
expect "another folder's" "it was made in $venv and moved" "$(venv_fault)"
printf '%s\n' '#!/bin/sh' "'''exec' \"/a b/.venv/bin/python3\" \"\$0\" \"\$@\"" >.venv/bin/pip.new
mv .venv/bin/pip.new .venv/bin/pip
expect "another folder's with a space" "it was made in /a b/.venv and moved" "$(venv_fault)"
rm .venv/bin/pip
expect "one without pip" "it has no pip" "$(venv_fault)"
mv .venv/lib .venv/lib.away
expect "one of another Python" "it was made for another Python than 3.*" "$(venv_fault)"
mv .venv/lib.away .venv/lib
mkdir .venv/lib/python3.1
expect "one of two Pythons" "it was made for another Python than 3.*" "$(venv_fault)"
rmdir .venv/lib/python3.1
ln -sf /nowhere/python3 .venv/bin/python
expect "one whose Python is gone" "its Python does not run*" "$(venv_fault)"
ln -sf "$venv/bin/python" .venv/bin/python

# Stand-ins that are made where the libraries of CUDA are present serve where they are not.
python=.venv/bin/python
mkdir cuda
cp -L "$venv"/lib/torch-stand-ins/*.so.* cuda
rm -rf .venv/lib/torch-stand-ins "$folder"/torch_stand_ins.*
LD_LIBRARY_PATH=$PWD/cuda $python tools/torch_stand_ins.py
expect "an import without CUDA" "2.11.0*" "$($python -c 'import torch; print(torch.__version__)' 2>&1 | tail -n 1)"
rm .venv/lib/torch-stand-ins/libcudnn.so.9
$python tools/torch_stand_ins.py
expect "a stand-in that was removed" 2.11.0* "$($python -c 'import torch; print(torch.__version__)' 2>&1 | tail -n 1)"
exit $failed
