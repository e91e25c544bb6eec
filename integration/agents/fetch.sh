#!/usr/bin/env bash
# Fetches the real agents through npm into a folder outside the repository: $KNOOT_AGENTS_CACHE, else
# ~/.cache/knoot-agents. Does nothing for what is there. Prints where each one is. With "others", those, too, whose tests are run
# only where they are there.
#
# They are other people's programs: fetched, run by tests, never committed.
set -euo pipefail

cache=${KNOOT_AGENTS_CACHE:-$HOME/.cache/knoot-agents}

# fetch NAME PACKAGE VERSION EXECUTABLE: EXECUTABLE is its path inside the package.
fetch() {
  local name=$1 package=$2 version=$3 executable=$4
  local target="$cache/$name-$version"
  if [ ! -x "$target/$executable" ]; then
    command -v npm >/dev/null 2>&1 || { echo "fetching $name needs npm (Node.js)" >&2; return 1; }
    mkdir -p "$cache"
    local work
    work=$(mktemp -d "$cache/.fetch-XXXXXX")
    # One rename puts it in place: whoever looks sees all of it or nothing.
    if ! {
      (cd "$work" && npm pack --silent --fetch-timeout=60000 "$package@$version" >/dev/null && tar -xzf ./*.tgz) &&
        grep -q "\"version\": *\"$version\"" "$work/package/package.json" &&
        chmod +x "$work/package/$executable"
    }; then
      rm -rf "$work"
      echo "could not fetch $package@$version through npm: is the registry reachable?" >&2
      return 1
    fi
    rm -rf "$target"
    mv "$work/package" "$target"
    rm -rf "$work"
  fi
  echo "$target/$executable"
}

case "$(uname -s)-$(uname -m)" in
  Linux-x86_64) ;;
  *) echo "the agents are fetched for Linux on x86-64 only" >&2; exit 1 ;;
esac
fetch claude @anthropic-ai/claude-agent-sdk-linux-x64 0.3.332 claude
fetch codex @openai/codex 0.171.0-linux-x64 vendor/x86_64-unknown-linux-musl/bin/codex
if [ "${1:-}" = others ]; then
  fetch copilot @github/copilot-linux-x64 1.0.102 copilot
  fetch opencode opencode-linux-x64 1.18.33 bin/opencode
fi
