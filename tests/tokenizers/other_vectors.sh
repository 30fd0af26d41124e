#!/usr/bin/env bash
# Checks that tests read the vectors of COLONNADE_VECTORS: they pass with a copy, and fail with a copy that has one wrong id.
# usage: other_vectors.sh TOKENIZERS_TEST
set -euo pipefail
cd "$(dirname "$0")/../vectors"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -r tokenizers "$folder"
run() { COLONNADE_VECTORS=$folder "$1" --gtest_brief=1 --gtest_filter='TokenizerJson/ReferenceVectors.MatchIds*/gpt2_bpe'; }
run "$1"
cp "$folder/tokenizers/gpt2_bpe.expected.jsonl" "$folder/before"
sed -i '2s/"ids": \[40,/"ids": [41,/' "$folder/tokenizers/gpt2_bpe.expected.jsonl"
! cmp -s "$folder/before" "$folder/tokenizers/gpt2_bpe.expected.jsonl"
if run "$1" >"$folder/log"; then
  echo "other_vectors: passed although a recorded id was changed"
  exit 1
fi
grep -q 'FAILED' "$folder/log"
