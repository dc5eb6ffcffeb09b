#!/usr/bin/env bash
# WikiText-103 (CC BY-SA) into data/wikitext-103/: from the network, or from a copy of the archive.
#   scripts/get_wikitext.sh [wikitext-103-v1.zip]
exec python3 -I "$(dirname "${BASH_SOURCE[0]}")/get_wikitext.py" "$@"
