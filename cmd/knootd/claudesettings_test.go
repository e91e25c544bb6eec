package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"knoot.dev/knoot/hook"
)

var testSettings = agentSettings{
	groups: testGroups(`k=${KNOOT_BIN:-knoot}; [ "$KNOOT" = off ] || "$k" hook claude 2>/dev/null; exit 0`,
		"SessionStart", "", "PreToolUse", "Read|Write", "Stop", ""),
	allow: []string{"Bash(knoot recall:*)", "Bash(knoot status:*)"},
}

// testGroups makes groups of pairs of event and matcher.
func testGroups(command string, pairs ...string) []hook.Group {
	var groups []hook.Group
	for i := 0; i < len(pairs); i += 2 {
		groups = append(groups, hook.Group{Event: pairs[i], Matcher: pairs[i+1], Command: command, Timeout: 5})
	}
	return groups
}

func TestSettingsOfNobody(t *testing.T) {
	s := agentSettings{groups: testGroups("knoot", "Stop", ""), allow: []string{"Bash(knoot recall:*)"}}
	got, err := s.add(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "hooks": {
    "Stop": [
      {
        "hooks": [
          {
            "type": "command",
            "command": "knoot",
            "timeout": 5
          }
        ]
      }
    ]
  },
  "permissions": {
    "allow": [
      "Bash(knoot recall:*)"
    ]
  }
}
`
	if string(got) != want {
		t.Errorf("a new file is\n%s\nwant\n%s", got, want)
	}
	if left, err := s.remove(got, s.allow); err != nil || left != nil {
		t.Errorf("after removal %q (%v), want no file", left, err)
	}
}

// What somebody else wrote, in the ways people write it.
var foreignSettings = []string{
	"{}", "{}\n", "{\n}\n", "{ }", " {}",
	`{"a":1}`,
	"{\n\t\"model\": \"opus\"\n}\n",
	"{\r\n    \"model\": \"opus\"\r\n}\r\n",
	`{"hooks":{}}`, `{"hooks": { }, "z": [1, 2 ]}`,
	`{"hooks":{"Stop":[]}}`,
	"{\n  \"hooks\": {\n    \"Stop\": [\n      {\"hooks\": [{\"type\": \"command\", \"command\": \"say done\"}]}\n    ]\n  },\n  \"env\": {\"X\": \"\\u00e9\"}\n}",
	`{"permissions":{"allow":["Bash(ls:*)"],"deny":[]}}`,
	`{"permissions":{}}`, `{"permissions":{"allow":[ ]}}`,
	`{"hooks":{"PreToolUse":[{"matcher":"Bash","hooks":[]}]}}`,
}

func TestSettingsOfSomebodyElse(t *testing.T) {
	for _, doc := range foreignSettings {
		checkRoundTrip(t, []byte(doc))
	}
}

// checkRoundTrip holds that adding keeps all that was there, that adding twice adds once, and that removing gives
// the first bytes back.
func checkRoundTrip(t interface{ Fatalf(string, ...any) }, doc []byte) {
	checkRoundTripOf(t, testSettings, doc)
	// The hooks of Cursor and Copilot CLI stand in an event's list as they are.
	for _, flat := range []agentSettings{{groups: hook.CursorGroups(), versioned: true}, {groups: hook.CopilotGroups(), versioned: true}} {
		checkRoundTripOf(t, flat, doc)
	}
}

func checkRoundTripOf(t interface{ Fatalf(string, ...any) }, settings agentSettings, doc []byte) {
	added, err := settings.add(doc)
	if err != nil {
		t.Fatalf("add to %q: %v", doc, err)
	}
	var before, after any
	if err := json.Unmarshal(doc, &before); err != nil {
		t.Fatalf("%q: %v", doc, err)
	}
	if err := json.Unmarshal(added, &after); err != nil {
		t.Fatalf("%q became %q: %v", doc, added, err)
	}
	if !contains(after, before) {
		t.Fatalf("%q became %q, which lacks something", doc, added)
	}
	if bytes.Count(added, []byte(quoteJSON(settings.groups[0].Command))) < len(settings.groups) {
		t.Fatalf("%q became %q, which lacks a hook", doc, added)
	}
	again, err := settings.add(added)
	if err != nil || !bytes.Equal(again, added) {
		t.Fatalf("added twice, %q became %q (%v)", added, again, err)
	}
	removed, err := settings.remove(added, settings.allow)
	if err != nil || !bytes.Equal(removed, doc) {
		t.Fatalf("%q came back as %q (%v) from %q", doc, removed, err, added)
	}
}

// contains reports whether big holds all of small, in order.
func contains(big, small any) bool {
	switch s := small.(type) {
	case map[string]any:
		b, ok := big.(map[string]any)
		for k, v := range s {
			if !ok || !contains(b[k], v) {
				return false
			}
		}
		return ok
	case []any:
		b, ok := big.([]any)
		for i, v := range s {
			if !ok || i >= len(b) || !contains(b[i], v) {
				return false
			}
		}
		return ok
	}
	return reflect.DeepEqual(big, small)
}

func TestSettingsRoundTripAny(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkRoundTrip(t, []byte(drawObject(t, drawSettings(t)))) })
}

// drawSettings draws the members of a settings file: some that knoot looks at, in right shapes, some not.
func drawSettings(t *rapid.T) map[string]string {
	members := map[string]string{}
	if rapid.Bool().Draw(t, "hooks") {
		events := map[string]string{}
		for _, event := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"Stop", "PreToolUse", "Notification"}), 0, 3, rapid.ID).Draw(t, "events") {
			events[event] = drawArray(t)
		}
		members["hooks"] = drawObject(t, events)
	}
	if rapid.Bool().Draw(t, "permissions") {
		lists := map[string]string{}
		for _, list := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"allow", "deny"}), 0, 2, rapid.ID).Draw(t, "lists") {
			lists[list] = drawArray(t)
		}
		members["permissions"] = drawObject(t, lists)
	}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "model", "é", `q"\`}), 0, 3, rapid.ID).Draw(t, "others") {
		members[name] = drawValue(t, 2)
	}
	return members
}

func drawSpace(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "", " ", "\n", "\n  ", "\t", "\r\n    "}).Draw(t, "space")
}

func drawObject(t *rapid.T, members map[string]string) string {
	var parts []string
	for name, value := range members {
		parts = append(parts, drawSpace(t)+quoteJSON(name)+drawSpace(t)+":"+drawSpace(t)+value+drawSpace(t))
	}
	return "{" + drawSpace(t) + strings.Join(parts, ",") + "}"
}

func drawArray(t *rapid.T) string {
	var parts []string
	for range rapid.IntRange(0, 3).Draw(t, "n") {
		parts = append(parts, drawSpace(t)+drawValue(t, 2)+drawSpace(t))
	}
	return "[" + drawSpace(t) + strings.Join(parts, ",") + "]"
}

func drawValue(t *rapid.T, depth int) string {
	if depth > 0 {
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			return drawArray(t)
		case 1:
			return drawObject(t, map[string]string{"hooks": drawValue(t, depth-1), "matcher": drawValue(t, depth-1)})
		}
	}
	return rapid.SampledFrom([]string{"1", "-2e3", "null", "true", `""`, `"a\"]}"`, `"\u2028"`, "[]", "{}"}).Draw(t, "plain")
}

func FuzzSettings(f *testing.F) {
	for _, doc := range foreignSettings {
		f.Add([]byte(doc))
	}
	added, _ := testSettings.add([]byte(foreignSettings[5]))
	f.Add(added)
	f.Add([]byte(`{"hooks":null}`))
	f.Add([]byte("{} // comment"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		added, err := testSettings.add(doc)
		if err != nil {
			return
		}
		if !json.Valid(added) {
			t.Fatalf("%q became %q", doc, added)
		}
		removed, err := testSettings.remove(added, testSettings.allow)
		if err != nil || !bytes.Contains(doc, []byte("knoot")) && !bytes.Contains(doc, []byte(`\u`)) && !bytes.Equal(removed, doc) {
			t.Fatalf("%q came back as %q (%v)", doc, removed, err)
		}
	})
}

func TestSettingsLeftAlone(t *testing.T) {
	for doc, why := range map[string]string{
		"{\n  // my model\n  \"model\": \"opus\"\n}": "not plain JSON",
		"[]":                                "not a JSON object",
		`{"hooks": []}`:                     `"hooks" in it`,
		`{"hooks": {"Stop": {}}}`:           `"Stop"`,
		`{"permissions": {"allow": "all"}}`: `"allow"`,
		"\xef\xbb\xbf{}":                    "not plain JSON",
	} {
		path := filepath.Join(t.TempDir(), "settings.json")
		if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := changeFile(path, testSettings.add)
		if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, want a sentence with %q and the path", doc, err, why)
		}
		if got, _ := os.ReadFile(path); string(got) != doc {
			t.Errorf("%q became %q", doc, got)
		}
	}
}

// An older version watched other tools: its group goes, today's comes.
func TestSettingsOfAnOlderVersion(t *testing.T) {
	old := testSettings
	old.groups = testGroups(testSettings.groups[0].Command, "SessionStart", "", "PreToolUse", "Write", "PreCompact", "")
	doc := []byte("{\n  \"model\": \"opus\"\n}\n")
	before, err := old.add(doc)
	if err != nil {
		t.Fatal(err)
	}
	now, err := testSettings.add(before)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(now, []byte("PreCompact")) || bytes.Count(now, []byte(`"matcher"`)) != 1 {
		t.Errorf("the old version's groups are still there:\n%s", now)
	}
	if removed, err := testSettings.remove(now, testSettings.allow); err != nil || !bytes.Equal(removed, doc) {
		t.Errorf("came back as %q (%v)", removed, err)
	}
}

func TestReportClaudeCode44631ChangeFileKeepsLinkAndMode(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "dotfiles.json"), filepath.Join(dir, "settings.json")
	if err := os.WriteFile(target, []byte("{}"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("dotfiles.json", link); err != nil {
		t.Fatal(err)
	}
	changed, err := changeFile(link, testSettings.add)
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is no link any more: %v %v", info, err)
	}
	if info, err := os.Stat(target); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mode is %v (%v), want 0640", info.Mode(), err)
	}
	if changed, err = changeFile(link, testSettings.add); err != nil || changed {
		t.Errorf("the second time changed %v (%v), want nothing to change", changed, err)
	}
	names, _ := os.ReadDir(dir)
	if len(names) != 2 {
		t.Errorf("left in the folder: %v", names)
	}
}
