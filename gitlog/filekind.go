package gitlog

import "strings"

// FileKind is what claims make of a file.
type FileKind int

// Whatever is not known to be another kind is ordinary.
const (
	FileOrdinary FileKind = iota // claimed by whoever writes it
	FileIgnored                  // git does not keep it: it concerns nobody else, and nothing is recorded
	FileNoted                    // made by programs, or listed: never claimed, and the next to write it gets a note
)

func (k FileKind) String() string { return [...]string{"ordinary", "ignored", "noted"}[k] }

// madeByPrograms are names of files that programs write as a whole and that merge by being made again: lockfiles. Two
// agents that both add a dependency both write them, and neither can wait. docs/guide.md has the same list.
var madeByPrograms = map[string]bool{
	"bun.lock": true, "bun.lockb": true, "buildscript-gradle.lockfile": true, "cabal.project.freeze": true, "cargo.lock": true,
	"cartfile.resolved": true, "chart.lock": true, "composer.lock": true, "conan.lock": true, "deno.lock": true, "flake.lock": true,
	"gemfile.lock": true, "gems.locked": true, "go.sum": true, "go.work.sum": true, "gradle.lockfile": true, "mix.lock": true,
	"module.bazel.lock": true, "npm-shrinkwrap.json": true, "package-lock.json": true, "package.resolved": true,
	"packages.lock.json": true, "paket.lock": true, "pdm.lock": true, "pipfile.lock": true, "pixi.lock": true, "pnpm-lock.yaml": true,
	"podfile.lock": true, "poetry.lock": true, "pubspec.lock": true, "rebar.lock": true, "shard.lock": true,
	"stack.yaml.lock": true, ".terraform.lock.hcl": true, "uv.lock": true, "yarn.lock": true,
}

// Snapshots of tests, which a test run writes: by the folder that they are in, and by ending.
var (
	snapshotFolders = map[string]bool{"__snapshots__": true, "__image_snapshots__": true}
	snapshotEndings = []string{".snap", ".snap.new", ".ambr"}
)

// isMade says whether a path is in these lists.
func isMade(path string) bool {
	path = FoldPath(path)
	dir, name := "", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir, name = path[:i], path[i+1:]
	}
	if madeByPrograms[name] {
		return true
	}
	for _, ending := range snapshotEndings {
		if strings.HasSuffix(name, ending) {
			return true
		}
	}
	for part := range strings.SplitSeq(dir, "/") {
		if snapshotFolders[part] {
			return true
		}
	}
	return false
}
