package mcpd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// arguments are what a tool is called with. Models send "5" for 5, the text of a list for a list, and null for what they leave out,
// so whatever has one meaning is taken.
type arguments map[string]json.RawMessage

// readArguments reads them; they may be missing, or a text that holds them.
func readArguments(raw json.RawMessage) (arguments, error) {
	raw = unwrapped(raw)
	if isAbsent(raw) {
		return arguments{}, nil
	}
	var args arguments
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, refusal("the arguments are not a JSON object")
	}
	return args, nil
}

func isAbsent(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

// unwrapped is the JSON that a JSON text holds, where it holds a list or an object; else what it was.
func unwrapped(raw json.RawMessage) json.RawMessage {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return raw
	}
	if inner := strings.TrimSpace(text); (strings.HasPrefix(inner, "[") || strings.HasPrefix(inner, "{")) && json.Valid([]byte(inner)) {
		return json.RawMessage(inner)
	}
	return raw
}

// has reports whether an argument is there and not null.
func (a arguments) has(name string) bool { return !isAbsent(a[name]) }

// text is an argument's text; "" where it is absent. A number and a truth are their text.
func (a arguments) text(name string) (string, error) {
	raw := a[name]
	if isAbsent(raw) {
		return "", nil
	}
	return textOf(name, raw)
}

func textOf(name string, raw json.RawMessage) (string, error) {
	var v any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if decoder.Decode(&v) == nil {
		switch v := v.(type) {
		case string:
			return v, nil
		case json.Number:
			return v.String(), nil
		case bool:
			return fmt.Sprint(v), nil
		}
	}
	return "", refusef("argument %q is to be a text", name)
}

// truth is an argument that is true or false; false where it is absent.
func (a arguments) truth(name string) (bool, error) {
	text, err := a.text(name)
	if err == nil {
		switch strings.ToLower(strings.TrimSpace(text)) {
		case "true", "1", "yes":
			return true, nil
		case "false", "0", "no", "":
			return false, nil
		}
	}
	return false, refusef("argument %q is to be true or false", name)
}

// texts is a list of texts; none where it is absent. A single text is a list of one.
func (a arguments) texts(name string) ([]string, error) {
	raw := unwrapped(a[name])
	if isAbsent(raw) {
		return nil, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		text, err := textOf(name, raw)
		if err != nil {
			return nil, refusef("argument %q is to be a list of texts", name)
		}
		if strings.TrimSpace(text) == "" {
			return nil, nil
		}
		return []string{text}, nil
	}
	var out []string
	for _, each := range list {
		text, err := textOf(name, each)
		if err != nil {
			return nil, refusef("argument %q is to be a list of texts", name)
		}
		out = append(out, text)
	}
	return out, nil
}

// objects is a list of objects; none where it is absent. A single object is a list of one.
func (a arguments) objects(name string) ([]arguments, error) {
	raw := unwrapped(a[name])
	if isAbsent(raw) {
		return nil, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		list = []json.RawMessage{raw}
	}
	var out []arguments
	for _, each := range list {
		var object arguments
		if json.Unmarshal(unwrapped(each), &object) != nil || object == nil {
			return nil, refusef("argument %q is to be a list of objects", name)
		}
		out = append(out, object)
	}
	return out, nil
}

// required is the text of an argument of one of several objects, which has to be there.
func (a arguments) required(list, name string) (string, error) {
	text, err := a.text(name)
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(text) == "" {
		return "", refusef("missing required argument %q in one of %q", name, list)
	}
	return text, nil
}
