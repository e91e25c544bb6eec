package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"knoot.dev/knoot/gitlog"
	"knoot.dev/knoot/hook"
)

// agentSettings is what knoot adds to an agent's settings file. Its entries are recognised by their text, which
// never changes, wherever they stand.
type agentSettings struct {
	groups []hook.Group
	allow  []string // permission rules; nil adds none
	// versioned says that a file which knoot makes begins with "version": 1. That of a file which is there is its owner's business.
	versioned bool
}

// group is the text of a group that stands at a depth.
func (s agentSettings) group(g hook.Group, l layout, depth int) string {
	var b bytes.Buffer
	_ = json.Indent(&b, g.JSON(), strings.Repeat(l.indent, depth), l.indent) // it is JSON
	return strings.ReplaceAll(b.String(), "\n", l.newline)
}

// quoteJSON quotes a string without the escapes for HTML, which nobody could read in a shell command.
func quoteJSON(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}

// add returns doc with knoot's entries, every other byte kept; the same bytes where they all stand in it already. An
// absent file is an empty doc.
func (s agentSettings) add(doc []byte) ([]byte, error) {
	if len(doc) == 0 {
		return s.fresh(), nil
	}
	doc, err := s.removeOld(doc)
	if err != nil {
		return nil, err
	}
	top, err := readObject(doc)
	if err != nil {
		return nil, err
	}
	l := layoutOf(doc, top)
	var insertions []insertion

	hooks := top.member("hooks")
	if hooks != nil && hooks.kind != '{' {
		return nil, errors.New(`"hooks" in it is not an object`)
	}
	var events []string // members to add to hooks
	for _, g := range s.groups {
		event := hooks.member(g.Event)
		if event == nil {
			events = append(events, fmt.Sprintf(`%q: [%s%s%s]`, g.Event, l.line(3), s.group(g, l, 3), l.line(2)))
			continue
		}
		if event.kind != '[' {
			return nil, fmt.Errorf("%q under \"hooks\" in it is not a list", g.Event)
		}
		if !s.has(doc, event, g) {
			insertions = append(insertions, appendItem(event, l, 3, s.group(g, l, 3)))
		}
	}
	var members []string // to add to the whole
	if len(events) > 0 {
		text := strings.Join(events, ","+l.line(2))
		if hooks == nil {
			members = append(members, `"hooks": {`+l.line(2)+text+l.line(1)+`}`)
		} else {
			insertions = append(insertions, appendItem(hooks, l, 2, text))
		}
	}

	more, member, err := s.addAllowed(doc, top, l)
	if err != nil {
		return nil, err
	}
	insertions = append(insertions, more...)
	if member != "" {
		members = append(members, member)
	}
	if len(members) > 0 {
		insertions = append(insertions, appendItem(top, l, 1, strings.Join(members, ","+l.line(1))))
	}
	return insertAll(doc, insertions), nil
}

// addAllowed says what to insert for the permission rules, or the member to add where there are no permissions yet.
func (s agentSettings) addAllowed(doc []byte, top *jsonValue, l layout) (insertions []insertion, member string, err error) {
	permissions := top.member("permissions")
	if permissions != nil && permissions.kind != '{' {
		return nil, "", errors.New(`"permissions" in it is not an object`)
	}
	list := permissions.member("allow")
	if list != nil && list.kind != '[' {
		return nil, "", errors.New(`"allow" under "permissions" in it is not a list`)
	}
	var rules []string
	for _, rule := range s.allow {
		if !list.holds(doc, rule) {
			rules = append(rules, quoteJSON(rule))
		}
	}
	if len(rules) == 0 {
		return nil, "", nil
	}
	text := strings.Join(rules, ","+l.line(3))
	allow := `"allow": [` + l.line(3) + text + l.line(2) + `]`
	switch {
	case permissions == nil:
		return nil, `"permissions": {` + l.line(2) + allow + l.line(1) + `}`, nil
	case list == nil:
		return []insertion{appendItem(permissions, l, 2, allow)}, "", nil
	default:
		return []insertion{appendItem(list, l, 3, text)}, "", nil
	}
}

// fresh is the file as knoot makes it where there is none.
func (s agentSettings) fresh() []byte {
	begin := "{\n}\n"
	if s.versioned {
		begin = "{\n  \"version\": 1\n}\n"
	}
	doc, err := s.add([]byte(begin))
	if err != nil {
		panic(err) // a constant
	}
	if s.versioned {
		return doc
	}
	// add marks the object as one that was there; here it is ours
	return append([]byte("{\n  "), doc[1:]...)
}

// has reports whether a group of an event runs knoot for the tools that g names.
func (s agentSettings) has(doc []byte, event *jsonValue, g hook.Group) bool {
	for _, group := range event.items {
		if group.value.member("matcher").text(doc) == g.Matcher && slices.Contains(s.ours(doc, group.value), true) {
			return true
		}
	}
	return false
}

// ours says for each hook of a group whether it is knoot's; a group that is itself a hook has one.
func (s agentSettings) ours(doc []byte, group *jsonValue) []bool {
	if key := s.groups[0].Flat; key != "" {
		return []bool{s.runs(group.member(key).text(doc))}
	}
	hooks := group.member("hooks")
	if hooks == nil || hooks.kind != '[' {
		return nil
	}
	ours := make([]bool, len(hooks.items))
	for i, h := range hooks.items {
		ours[i] = s.runs(h.value.member("command").text(doc))
	}
	return ours
}

// runs reports whether a command is knoot's.
func (s agentSettings) runs(command string) bool {
	return slices.ContainsFunc(s.groups, func(g hook.Group) bool { return g.Command == command })
}

// holds reports whether an array has the string.
func (v *jsonValue) holds(doc []byte, text string) bool {
	if v == nil {
		return false
	}
	return slices.ContainsFunc(v.items, func(item jsonItem) bool { return item.value.text(doc) == text })
}

// removeOld takes out those groups that an older version wrote for other tools than today's.
func (s agentSettings) removeOld(doc []byte) ([]byte, error) {
	return s.cut(doc, func(event string, group *jsonValue, doc []byte) bool {
		matcher := group.member("matcher").text(doc)
		return !slices.ContainsFunc(s.groups, func(g hook.Group) bool { return g.Event == event && g.Matcher == matcher })
	}, nil)
}

// remove takes out everything that add adds. The result is nil where nothing but knoot's own file is left of it:
// then the file should go. allow names the permission rules to take out.
func (s agentSettings) remove(doc []byte, allow []string) ([]byte, error) {
	if len(doc) == 0 {
		return doc, nil
	}
	for _, rules := range [][]string{nil, allow} {
		made := s
		if made.allow = rules; string(doc) == string(made.fresh()) {
			return nil, nil
		}
	}
	return s.cut(doc, func(string, *jsonValue, []byte) bool { return true }, allow)
}

// cut removes knoot's hooks from the groups for which of holds, and the permission rules.
func (s agentSettings) cut(doc []byte, of func(event string, group *jsonValue, doc []byte) bool, allow []string) ([]byte, error) {
	top, err := readObject(doc)
	if err != nil {
		return nil, err
	}
	var cuts []span
	topGone := make([]bool, len(top.items))
	for i, member := range top.items {
		switch member.key {
		case "hooks":
			more, whole := s.cutHooks(doc, member.value, of)
			cuts, topGone[i] = append(cuts, more...), whole
		case "permissions":
			more, whole := cutAllowed(doc, member.value, allow)
			cuts, topGone[i] = append(cuts, more...), whole
		}
	}
	more, whole := removeItems(top, topGone)
	if whole { // the object has to stay, the file is somebody's
		more = []span{{top.start + 1, top.end - 1}}
	}
	return cutAll(doc, append(cuts, more...)), nil
}

func (s agentSettings) cutHooks(doc []byte, hooks *jsonValue, of func(string, *jsonValue, []byte) bool) (cuts []span, whole bool) {
	if hooks.kind != '{' {
		return nil, false
	}
	eventGone := make([]bool, len(hooks.items))
	for i, event := range hooks.items {
		if event.value.kind != '[' {
			continue
		}
		var inside []span
		groupGone := make([]bool, len(event.value.items))
		for j, group := range event.value.items {
			ours := s.ours(doc, group.value)
			if !slices.Contains(ours, true) || !of(event.key, group.value, doc) {
				continue
			}
			if s.groups[0].Flat != "" {
				groupGone[j] = true
				continue
			}
			more, all := removeItems(group.value.member("hooks"), ours)
			if groupGone[j] = all || !slices.Contains(ours, false); !groupGone[j] {
				inside = append(inside, more...)
			}
		}
		more, all := removeItems(event.value, groupGone)
		if eventGone[i] = all; !all {
			cuts = append(append(cuts, inside...), more...)
		}
	}
	more, whole := removeItems(hooks, eventGone)
	if whole {
		return nil, true
	}
	return append(cuts, more...), false
}

func cutAllowed(doc []byte, permissions *jsonValue, allow []string) (cuts []span, whole bool) {
	if permissions.kind != '{' {
		return nil, false
	}
	gone := make([]bool, len(permissions.items))
	for i, member := range permissions.items {
		if member.key != "allow" || member.value.kind != '[' {
			continue
		}
		rules := make([]bool, len(member.value.items))
		for j, rule := range member.value.items {
			rules[j] = slices.Contains(allow, rule.value.text(doc)) && rule.value.kind == '"'
		}
		more, all := removeItems(member.value, rules)
		if gone[i] = all; !all {
			cuts = append(cuts, more...)
		}
	}
	more, whole := removeItems(permissions, gone)
	if whole {
		return nil, true
	}
	return append(cuts, more...), false
}

func readObject(doc []byte) (*jsonValue, error) {
	top, err := readJSON(doc)
	if err != nil {
		return nil, err
	}
	if top.kind != '{' {
		return nil, errors.New("it is not a JSON object")
	}
	return top, nil
}

// throughLink returns the file that a path leads to through symbolic links, which a rewrite by rename would replace otherwise: the path
// itself where nothing is there yet.
func throughLink(path string) (string, error) {
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		if _, lerr := os.Lstat(path); lerr == nil {
			return "", fmt.Errorf("%s is a symbolic link to nothing: mend it or remove it, then try again", path)
		}
		return path, nil
	}
	return target, err
}

// changeFile rewrites a file by rename, through a symbolic link to its target, with the mode it has (0644 for a new
// one). change gets the bytes (none where there is no file) and returns the new ones, nil to remove the file. The
// file is not touched when nothing changes.
func changeFile(path string, change func([]byte) ([]byte, error)) (changed bool, err error) {
	target, err := throughLink(path)
	if err != nil {
		return false, err
	}
	mode := os.FileMode(0o644)
	doc, err := os.ReadFile(target)
	switch {
	case errors.Is(err, os.ErrNotExist):
		doc = nil
	case err != nil:
		return false, err
	default:
		info, err := os.Stat(target)
		if err != nil {
			return false, err
		}
		mode = info.Mode().Perm()
	}
	out, err := change(doc)
	if err != nil {
		return false, fmt.Errorf("%s is left as it is, since %w: add knoot's hooks by hand, or mend the file and run `knoot init` again", path, err)
	}
	if string(out) == string(doc) {
		return false, nil
	}
	if out == nil {
		return true, os.Remove(target)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return false, err
	}
	return true, gitlog.ReplaceFile(target, out, mode)
}
