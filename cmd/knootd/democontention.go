package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// What the first of the demo's two agents is at.
const demoIntent = "rewrite the invoice rounding to half-even"

// contend plays two agents in one clone that write one file.
func (s *theatre) contend(ctx context.Context) error {
	clone, first, second := s.clone("priya"), "priya-wednesday", "priya-thursday"
	for _, begin := range []struct{ session, prompt string }{{first, demoIntent}, {second, "show each price with its currency"}} {
		if err := s.begins(ctx, clone, begin.session, begin.prompt); err != nil {
			return err
		}
	}
	if err := s.claims(ctx, "priya", first, demoPath, "toolu_first"); err != nil {
		return err
	}
	if err := s.write(clone, "function total(items, currency) {\n  return halfEven(items.reduce((sum, item) => sum + item.price[currency], 0));\n}\n"); err != nil {
		return err
	}
	if _, err := s.hook(ctx, clone, first, writeOf(clone, "PostToolUse", "toolu_first", demoPath)); err != nil {
		return err
	}
	fmt.Fprintf(s.stdout, "   %s\n", s.dim("priya's agent, at the rounding, writes "+demoPath+". Her other is about to:"))

	refused, err := s.refused(ctx, "priya", second, demoPath, "toolu_second")
	if err != nil {
		return err
	}
	fmt.Fprintf(s.stdout, "   %s\n%s\n", s.dim("the other agent, instead of writing, reads:"), quoted(refused.Denial))
	if want := lacking(refused.Denial, []string{"knoot refused this edit", demoPath, "priya's agent", demoIntent, "its lease has", "Nothing was written."}); want != "" {
		return fmt.Errorf("the denial does not say %q", want)
	}
	if refused.Person != "" {
		fmt.Fprintf(s.stdout, "   %s\n%s\n", s.dim("and priya sees:"), quoted(refused.Person))
	}
	out, err := s.run(ctx, clone, nil, nil, "knoot", "who")
	if err != nil {
		return err
	}
	fmt.Fprintln(s.stdout)
	s.show("priya", "knoot who", out)

	if _, err := s.hook(ctx, clone, first, payload{"hook_event_name": "Stop", "stop_hook_active": false, "background_tasks": []any{}}); err != nil {
		return err
	}
	fmt.Fprintf(s.stdout, "\n   %s\n", s.dim("The first agent's turn ends. At its next tool call, the other reads:"))
	told, err := s.tells(ctx, "priya", second, demoPath+", which you were denied, is free now")
	if err != nil {
		return err
	}
	fmt.Fprintln(s.stdout, quoted(told))
	if err := s.claims(ctx, "priya", second, demoPath, "toolu_third"); err != nil {
		return err
	}
	if _, err := s.hook(ctx, clone, second, payload{"hook_event_name": "SessionEnd", "reason": "other"}); err != nil {
		return err
	}
	s.checked("one of the two wrote, the other was told who, why and for how long; once the file was free, its write was allowed.")
	// The rounding is committed: what follows finds a clean tree.
	return s.all(ctx, clone, []string{"commit", "-qam", "Half-even rounding"}, []string{"push", "-q"})
}

// claims asks for a file, as the hook before a write does, until the session holds it; it must not be refused. A hook allows rather than
// make its agent wait, so on a busy machine the claim may come with the next.
func (s *theatre) claims(ctx context.Context, person, session, path, call string) error {
	patience, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	clone := s.clone(person)
	return s.until(patience, session+" does not hold "+path, func() (bool, error) {
		h, err := s.answerOf(ctx, clone, session, writeOf(clone, "PreToolUse", call, path))
		if err == nil && h.Denial != "" {
			err = fmt.Errorf("%s was refused: %s", session, h.Denial)
		}
		if err != nil {
			return false, err
		}
		return s.holds(ctx, clone, session, path)
	})
}

// refused asks for a file until it is refused, and returns the denial.
func (s *theatre) refused(ctx context.Context, person, session, path, call string) (h heard, err error) {
	patience, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	clone := s.clone(person)
	err = s.until(patience, session+" was not refused "+path, func() (denied bool, err error) {
		h, err = s.answerOf(ctx, clone, session, writeOf(clone, "PreToolUse", call, path))
		return h.Denial != "", err
	})
	return h, err
}

// until tries until it is so; it fails with a sentence when patience ends.
func (s *theatre) until(patience context.Context, sentence string, try func() (bool, error)) error {
	for {
		if done, err := try(); err != nil || done {
			return err
		}
		select {
		case <-patience.Done():
			return errors.New(sentence)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// holds asks `knoot who` whether a session holds a file.
func (s *theatre) holds(ctx context.Context, clone, session, path string) (bool, error) {
	out, err := s.run(ctx, clone, nil, nil, "knoot", "who", "--json")
	if err != nil {
		return false, err
	}
	var who struct {
		Sessions []struct {
			Session string `json:"session"`
			Claims  []struct {
				Path string `json:"path"`
			} `json:"claims"`
		} `json:"sessions"`
	}
	if err := json.Unmarshal([]byte(out), &who); err != nil {
		return false, fmt.Errorf("`knoot who --json` printed %q: %w", out, err)
	}
	for _, each := range who.Sessions {
		for _, c := range each.Claims {
			if strings.Contains(each.Session, session) && c.Path == path {
				return true, nil
			}
		}
	}
	return false, nil
}

func writeOf(clone, event, call, path string) payload {
	return payload{
		"hook_event_name": event, "tool_name": "Write", "tool_use_id": call,
		"tool_input": map[string]string{"file_path": filepath.Join(clone, filepath.FromSlash(path)), "content": "…"},
	}
}
