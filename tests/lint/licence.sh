#!/bin/sh
# SPDX-License-Identifier: MIT
# Every file of ours says its licence in its first three lines; texts for people do not, nor does data in
# which every line matters.
set -eu
cd "$(dirname "$0")/../.."

missing=$(
	find Makefile .ci src conf sql systemd tests -type d -name node_modules -prune -o \
		-type f ! -name '*.md' ! -name '*.json' ! -path 'tests/config/*' ! -path '*/seeds/*' -print |
		while IFS= read -r file; do
			head -n 3 "$file" | grep -q 'SPDX-License-Identifier: MIT' || echo "$file"
		done
)
if [ -n "$missing" ]; then
	echo "no 'SPDX-License-Identifier: MIT' in the first three lines of:" >&2
	echo "$missing" >&2
	exit 1
fi
echo "every file says its licence"
