package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hmarr/codeowners"

	"knoot.dev/knoot/gitlog"
)

// codeownersPlaces are where hosts look for the file, in GitHub's order and then GitLab's.
var codeownersPlaces = []string{".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS"}

// readCodeowners returns the file of a work tree and its place in it.
func readCodeowners(root string) (text []byte, place string, err error) {
	for _, place := range codeownersPlaces {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(place)))
		if os.IsNotExist(err) {
			continue
		}
		return text, place, err
	}
	return nil, "", fmt.Errorf("there is no CODEOWNERS here: hosts look for it at %s", orList(codeownersPlaces))
}

// areasOf makes areas of a CODEOWNERS file: by prefix the name of a room, made of the owners' names. What an area cannot say is
// in odd, a sentence each. There the last rule that matches counts, here the longest prefix: a rule that takes back an earlier,
// narrower one replaces it.
func areasOf(text string) (areas map[string]string, odd []string) {
	areas = map[string]string{}
	lines := map[string]int{}
	for i, line := range strings.Split(text, "\n") {
		number := i + 1
		rules, err := codeowners.ParseFile(strings.NewReader(strings.TrimSuffix(line, "\r")))
		if err != nil {
			what := err.Error()
			if _, after, ok := strings.Cut(what, "line 1: "); ok { // each line was read alone
				what = after
			}
			odd = append(odd, fmt.Sprintf("line %d does not parse: %s", number, plain(what)))
			continue
		}
		for _, rule := range rules {
			prefix, why := prefixOf(rule.RawPattern())
			if why != "" {
				odd = append(odd, fmt.Sprintf("line %d, %s: %s", number, plain(rule.RawPattern()), why))
			}
			if why != "" && why != wholeRepository {
				continue
			}
			for _, earlier := range sortedKeys(areas) {
				if earlier != prefix && (prefix == "" || within(earlier, prefix)) {
					odd = append(odd, fmt.Sprintf("line %d, /%s: line %d comes later and takes all of /%s", lines[earlier], earlier, number, prefix))
					delete(areas, earlier)
				}
			}
			if prefix == "" {
				continue
			}
			areas[prefix], lines[prefix] = roomOfOwners(rule.Owners), number
		}
	}
	// An area that says what would be so without it says nothing.
	for _, prefix := range sortedKeys(areas) {
		around, length := generalRoom, -1
		for other, room := range areas {
			if other != prefix && within(prefix, other) && len(other) > length {
				around, length = room, len(other)
			}
		}
		if areas[prefix] == around {
			delete(areas, prefix)
		}
	}
	return areas, odd
}

func sortedKeys(areas map[string]string) []string { return slices.Sorted(maps.Keys(areas)) }

// within says that a path is a prefix's or below it.
func within(path, prefix string) bool {
	path, prefix = gitlog.FoldPath(path), gitlog.FoldPath(prefix)
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

const wholeRepository = "the whole repository is no area; what is in none belongs to general, which holds every member"

// prefixOf turns a pattern into the prefix that matches the same paths, or says why there is none.
func prefixOf(pattern string) (prefix, why string) {
	if pattern == "*" || pattern == "/" || pattern == "/*" || pattern == "/**" || pattern == "**" {
		return "", wholeRepository
	}
	body := strings.TrimSuffix(strings.TrimSuffix(pattern, "/**"), "/")
	switch {
	case strings.ContainsAny(body, "*?[\\"):
		return "", "a pattern with *, ?, [ or \\ is no path prefix"
	case !strings.Contains(strings.TrimSuffix(pattern, "/"), "/"):
		return "", "without a slash at the start it means that name in every folder, which is no path prefix"
	}
	prefix, err := gitlog.CanonicalPath(strings.TrimPrefix(body, "/"))
	if err != nil || prefix == "" {
		return "", "that is no path in a repository"
	}
	return prefix, ""
}

// roomOfOwners names a room after owners: two groups that share an area get a room of their own. Nobody owns what is everybody's.
func roomOfOwners(owners []codeowners.Owner) string {
	if len(owners) == 0 {
		return generalRoom
	}
	var names []string
	for _, owner := range owners {
		name := owner.Value
		if owner.Type == codeowners.TeamOwner {
			name = name[strings.LastIndexByte(name, '/')+1:]
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), "+")
}

// withAreas returns the text of settings with that division, in the place of the one that was there. All else stays.
func withAreas(text string, areas map[string]string) string {
	var before, after []string
	state := &before
	for _, line := range strings.SplitAfter(text, "\n") {
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == "[areas]" || strings.HasPrefix(trimmed, "[areas]") && strings.HasPrefix(strings.TrimSpace(trimmed[len("[areas]"):]), "#"):
			state = nil
		case state == nil && strings.HasPrefix(trimmed, "["):
			state = &after
		}
		if state != nil {
			*state = append(*state, line)
		}
	}
	var b strings.Builder
	b.WriteString(strings.TrimRight(strings.Join(before, ""), "\n") + "\n\n[areas]\n")
	for _, prefix := range sortedKeys(areas) {
		fmt.Fprintf(&b, "%s = %s\n", tomlString(prefix), tomlString(areas[prefix]))
	}
	if rest := strings.Join(after, ""); rest != "" {
		b.WriteString("\n" + rest)
	}
	return b.String()
}

// tomlString writes a basic string of TOML, whose escapes are JSON's for all that is text.
func tomlString(text string) string { return quoteJSON(text) }
