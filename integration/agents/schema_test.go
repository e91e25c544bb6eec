package agents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// schemas are the JSON schemas of hooks that a Codex executable holds, by their names, such as pre-tool-use.command.output.
func schemas(t *testing.T, executable string) map[string]map[string]any {
	t.Helper()
	program, err := os.ReadFile(executable)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]any{}
	begin := []byte("{\n  \"$schema\": \"http://json-schema.org/draft-07/schema#\"")
	for {
		at := bytes.Index(program, begin)
		if at < 0 {
			break
		}
		var schema map[string]any
		if err := json.NewDecoder(bytes.NewReader(program[at:])).Decode(&schema); err != nil {
			t.Fatal(err)
		}
		if title, ok := schema["title"].(string); ok {
			found[title] = schema
		}
		program = program[at+len(begin):]
	}
	return found
}

// schemaName is how Codex names the schema of an event.
func schemaName(event, kind string) string {
	name := regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(event, func(c string) string { return "-" + strings.ToLower(c) })
	return strings.TrimPrefix(name, "-") + ".command." + kind
}

// accepts says why a schema does not accept a value; nil: it does. It knows the words that Codex's schemas use, and fails for
// others.
func accepts(root, schema map[string]any, value any) error {
	for word, rule := range schema {
		switch word {
		case "$schema", "title", "description", "default", "definitions", "required", "properties":
		case "$ref":
			name := strings.TrimPrefix(rule.(string), "#/definitions/")
			if err := accepts(root, root["definitions"].(map[string]any)[name].(map[string]any), value); err != nil {
				return err
			}
		case "allOf":
			for _, each := range rule.([]any) {
				if err := accepts(root, each.(map[string]any), value); err != nil {
					return err
				}
			}
		case "const":
			if !reflect.DeepEqual(value, rule) {
				return fmt.Errorf("%v is not %v", value, rule)
			}
		case "enum":
			known := false
			for _, each := range rule.([]any) {
				known = known || reflect.DeepEqual(value, each)
			}
			if !known {
				return fmt.Errorf("%v is none of %v", value, rule)
			}
		case "type":
			kinds, several := rule.([]any)
			if !several {
				kinds = []any{rule}
			}
			is := map[string]bool{"null": value == nil}
			switch value.(type) {
			case string:
				is["string"] = true
			case bool:
				is["boolean"] = true
			case map[string]any:
				is["object"] = true
			}
			fits := false
			for _, kind := range kinds {
				fits = fits || is[kind.(string)]
			}
			if !fits {
				return fmt.Errorf("%v is no %v", value, rule)
			}
		case "additionalProperties":
			if rule != false {
				return fmt.Errorf("additionalProperties is %v in a schema", rule)
			}
		default:
			return fmt.Errorf("a schema says %q", word)
		}
	}
	object, ok := value.(map[string]any)
	properties, _ := schema["properties"].(map[string]any)
	if !ok {
		return nil
	}
	required, _ := schema["required"].([]any)
	for _, key := range required {
		if _, there := object[key.(string)]; !there {
			return fmt.Errorf("%q is missing", key)
		}
	}
	for key, inner := range object {
		switch rule := properties[key].(type) {
		case map[string]any:
			if err := accepts(root, rule, inner); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		case nil:
			if schema["additionalProperties"] == false {
				return fmt.Errorf("%q is too much", key)
			}
		}
	}
	return nil
}

// What the tests of package hook hold to be payloads and answers of Codex is so by the schemas of the real one.
func TestCodexsSchemas(t *testing.T) {
	t.Parallel()
	agent, err := FindCodex()
	if err != nil {
		t.Skip(err)
	}
	known := schemas(t, agent.(Codex).Program())
	const hooks = "../../hook/testdata/"
	for _, file := range []string{hooks + "codex.jsonl", recordings("codex"), recordings("codex-code-mode")} {
		for _, line := range lines(t, file) {
			var payload map[string]any
			if err := json.Unmarshal([]byte(line), &payload); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			name := schemaName(payload["hook_event_name"].(string), "input")
			if err := accepts(known[name], known[name], payload); err != nil || known[name] == nil {
				t.Errorf("%s: %s: %v", name, line, err)
			}
		}
	}
	answers := 0
	for _, line := range lines(t, hooks+"answers.tsv") {
		cells := strings.Split(line, "\t")
		if cells[0] != "codex" || cells[3] == "" {
			continue
		}
		answers++
		var answer any
		if err := json.Unmarshal([]byte(cells[3]), &answer); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		name := schemaName(cells[1], "output")
		if err := accepts(known[name], known[name], answer); err != nil || known[name] == nil {
			t.Errorf("%s: %s: %v", name, cells[3], err)
		}
	}
	if answers == 0 {
		t.Error("there is no answer to Codex among the golden ones")
	}
	pre := known["pre-tool-use.command.output"]
	for _, refused := range []string{`{"note":1}`, `{"hookSpecificOutput":{"hookEventName":"Stop"}}`, `{"hookSpecificOutput":{}}`, `{"reason":7}`,
		`{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"defer"}}`, `[]`} {
		var answer any
		if err := json.Unmarshal([]byte(refused), &answer); err != nil {
			t.Fatal(err)
		}
		if accepts(pre, pre, answer) == nil {
			t.Errorf("the schema accepts %s", refused)
		}
	}
}

func lines(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}
