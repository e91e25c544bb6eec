#!/usr/bin/env bash
# Fetches MCP clients that other people wrote, and the Node.js that runs them, through npm into a folder outside the repository:
# $KNOOT_CLIENTS_CACHE, else ~/.cache/knoot-clients. What is fetched is in package-lock.json, with its checksums; each state of that
# file has a folder of its own there. Does nothing where that is there. Prints the folder.
#
# They are other people's programs: fetched, run by tests, never committed. None of their scripts runs when they are installed.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
case "$(uname -s)-$(uname -m)" in
  Linux-x86_64) ;;
  *) echo "the clients are fetched for Linux on x86-64 only" >&2; exit 1 ;;
esac
cache=${KNOOT_CLIENTS_CACHE:-$HOME/.cache/knoot-clients}
target=$cache/$(sha256sum <package-lock.json | cut -c1-16)
if [ ! -d "$target" ]; then
  command -v npm >/dev/null 2>&1 || { echo "fetching the clients needs npm (Node.js)" >&2; exit 1; }
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/.fetch-XXXXXX")
  trap 'rm -rf "$work"' EXIT
  cp package.json package-lock.json "$work"
  if ! (cd "$work" && npm ci --ignore-scripts --prefer-offline --fetch-retry-mintimeout=2000 --fetch-timeout=60000 --no-audit --no-fund --loglevel=error >&2); then
    echo "could not fetch the clients through npm: is the registry reachable?" >&2
    exit 1
  fi
  # One rename puts it in place: whoever looks sees all of it or nothing. Somebody else's, made meanwhile, is as good.
  mv -T "$work" "$target" 2>/dev/null || [ -d "$target" ]
fi
echo "$target"
