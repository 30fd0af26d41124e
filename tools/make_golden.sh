#!/usr/bin/env bash
# Regenerates the golden files of the project: the frozen list of flags and the settings page. A person looks at the
# difference before it is committed. Recorded results of other programs (tests/vectors) are never made here.
#
#   tools/make_golden.sh BUILD
set -euo pipefail
cd "$(dirname "$0")/.."
COLONNADE_GOLDEN=1 "$1/src/colonnade/config/config_test" --gtest_filter='Schema.ListOfFlagsIsFrozen:Help.ReferencePageIsUpToDate' >/dev/null
git --no-pager diff --stat -- tests/config/flags.golden.txt docs/reference/settings.md
echo "golden: look at the difference above, then commit it"
