package integration

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "knoot.dev/knoot"

// mayImport is the table of docs/architecture.md: imports go downwards only. A folder may always import itself; a longer
// name stands before the folder that holds it.
var mayImport = []folderRule{
	{"gitlog", nil},
	{"arbiter", []string{"gitlog"}},
	{"daemon/socket", nil},
	{"daemon", []string{"gitlog", "arbiter"}},
	{"hook", []string{"daemon/socket"}},
	{"mcpd", []string{"daemon"}},
	{"cmd/knoot", []string{"hook", "daemon/socket"}},
	{"cmd/knootd", []string{"gitlog", "arbiter", "daemon", "hook", "mcpd"}},
	{"integration", nil}, // builds the executables and runs them
}

type folderRule struct {
	folder  string
	imports []string
}

func within(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

func TestImportsGoDownwards(t *testing.T) {
	command := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	command.Dir = root(t)
	output, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var listed struct {
			ImportPath                         string
			Imports, TestImports, XTestImports []string
		}
		err := decoder.Decode(&listed)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		from := strings.TrimPrefix(listed.ImportPath, module+"/")
		rule := slices.IndexFunc(mayImport, func(r folderRule) bool { return within(from, r.folder) })
		if rule < 0 {
			t.Errorf("%s is in no folder of docs/architecture.md", from)
			continue
		}
		allowed := append([]string{mayImport[rule].folder}, mayImport[rule].imports...)
		for _, imported := range slices.Concat(listed.Imports, listed.TestImports, listed.XTestImports) {
			to, ours := strings.CutPrefix(imported, module+"/")
			if to == "integration/stage" && !slices.Contains(listed.Imports, imported) {
				continue // tests of whole programs play on it
			}
			if ours && !slices.ContainsFunc(allowed, func(folder string) bool { return within(to, folder) }) {
				t.Errorf("%s imports %s; it may import %q only", from, to, allowed)
			}
		}
	}
}

func TestFoldersAreThoseOfTheArchitecture(t *testing.T) {
	known := []string{".ci", "arbiter", "cmd", "daemon", "docs", "gitlog", "hook", "integration", "mcpd"}
	saysNothing := regexp.MustCompile(`^(util|utils|common|helper|helpers|misc|types|internal|pkg)(_test)?(\.go)?$`)
	for _, file := range files(t) {
		parts := strings.Split(file, "/")
		if len(parts) > 1 && !slices.Contains(known, parts[0]) {
			t.Errorf("%s: %s is no folder of docs/architecture.md", file, parts[0])
		}
		if parts[0] == "cmd" && len(parts) > 1 && parts[1] != "knoot" && parts[1] != "knootd" {
			t.Errorf("%s: there are two executables, knoot and knootd", file)
		}
		for _, part := range parts {
			if saysNothing.MatchString(part) {
				t.Errorf("%s: a file is named after the thing it holds", file)
			}
		}
	}
}

func TestBothLicencesArePresent(t *testing.T) {
	for file, texts := range map[string][]string{
		"LICENSE-MIT":    {"MIT License", "the knoot authors", "WITHOUT WARRANTY OF ANY KIND"},
		"LICENSE-APACHE": {"Apache License", "Version 2.0, January 2004", "the knoot authors", "END OF TERMS AND CONDITIONS"},
		"README.md":      {"LICENSE-MIT", "LICENSE-APACHE"},
	} {
		content := read(t, file)
		for _, text := range texts {
			if !strings.Contains(content, text) {
				t.Errorf("%s does not say %q", file, text)
			}
		}
	}
}

func TestLinksInMarkdownResolve(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, file := range files(t) {
		if path.Ext(file) != ".md" {
			continue
		}
		for _, match := range link.FindAllStringSubmatch(withoutCode(read(t, file)), -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			destination := file
			if target != "" {
				destination = path.Join(path.Dir(file), target)
			}
			info, err := os.Stat(filepath.Join(root(t), destination))
			if err != nil {
				t.Errorf("%s: the link to %s leads nowhere", file, match[1])
				continue
			}
			if anchor != "" && !info.IsDir() && !slices.Contains(anchors(read(t, destination)), anchor) {
				t.Errorf("%s: %s has no heading %q", file, destination, anchor)
			}
		}
	}
}

var fence = regexp.MustCompile("(?ms)^```.*?^```")

func withoutCode(markdown string) string { return fence.ReplaceAllString(markdown, "") }

// anchors returns the names that a Markdown file's headings get on the usual hosts.
func anchors(markdown string) []string {
	var names []string
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, line := range strings.Split(withoutCode(markdown), "\n") {
		if heading := strings.TrimLeft(line, "#"); heading != line && strings.HasPrefix(heading, " ") {
			name := dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			names = append(names, strings.ReplaceAll(name, " ", "-"))
		}
	}
	return names
}

func TestMakeTargetsThatAreNamedExist(t *testing.T) {
	named := regexp.MustCompile("(?m)(?:`|^ *|\\$ )make ([a-z]+)")
	makefile := read(t, "Makefile")
	for _, file := range files(t) {
		if path.Ext(file) != ".md" && file != ".ci/run" {
			continue
		}
		for _, match := range named.FindAllStringSubmatch(read(t, file), -1) {
			if !regexp.MustCompile(`(?m)^` + match[1] + `:`).MatchString(makefile) {
				t.Errorf("%s: make %s: the Makefile has no such target", file, match[1])
			}
		}
	}
}

// A document that says which test holds a sentence names one that is there.
func TestTestsThatDocumentsNameExist(t *testing.T) {
	defined := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	for _, file := range files(t) {
		if strings.HasSuffix(file, "_test.go") {
			for _, match := range function.FindAllStringSubmatch(read(t, file), -1) {
				defined[match[1]] = true
			}
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)\\w+)`")
	for _, file := range files(t) {
		if path.Ext(file) != ".md" {
			continue
		}
		for _, match := range named.FindAllStringSubmatch(read(t, file), -1) {
			if !defined[match[1]] {
				t.Errorf("%s names %s, which is no test", file, match[1])
			}
		}
	}
}

// A path of the machine on which something was written says nothing to anybody else.
func TestNoFileNamesThisMachinesFolders(t *testing.T) {
	machine := []string{root(t)}
	if home, err := os.UserHomeDir(); err == nil && home != "/" {
		machine = append(machine, home+"/")
	}
	for _, file := range files(t) {
		content := read(t, file)
		for _, folder := range machine {
			if strings.Contains(content, folder) {
				t.Errorf("%s names %s", file, folder)
			}
		}
	}
}

// root is the folder of go.mod.
func root(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// files lists what belongs to the repository, relative to its root, with slashes. It needs no git, so it works in an archive.
func files(t testing.TB) []string {
	t.Helper()
	var found []string
	err := fs.WalkDir(os.DirFS(root(t)), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".git" || name == "bin":
			if entry.IsDir() {
				return fs.SkipDir
			}
		case entry.Type().IsRegular():
			found = append(found, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func read(t testing.TB, file string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root(t), file))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
