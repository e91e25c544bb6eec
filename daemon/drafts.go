package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"knoot.dev/knoot/gitlog"
)

// Draft is a fact of an agent's that waits for its person ([memory] agent_facts = review). Drafts stay on this machine, a
// sealed file a repository; whoever holds the clone's lock may change them.
type Draft struct {
	At      gitlog.Millis          `json:"at"`
	Request gitlog.RememberRequest `json:"request"`
}

// maxDrafts bounds the drafts of a repository: more than that nobody reviews.
const maxDrafts = 200

func (w Workplace) draftsPath() string {
	settings := w.Clone.Settings()
	return filepath.Join(w.Home.Dir, "state", "drafts-"+settings.Repository.String())
}

// Drafts reads what waits for this person in the clone's repository, oldest first.
func (w Workplace) Drafts() ([]Draft, error) {
	path := w.draftsPath()
	sealed, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the drafts: %w", err)
	}
	plain, err := gitlog.OpenRecord(&w.Clone.Device().Local, stateContext(filepath.Base(path)), 0, sealed)
	if err != nil {
		return nil, fmt.Errorf("cannot read the drafts (remove %s to go on without them): %w", path, err)
	}
	var drafts []Draft
	if err := json.Unmarshal(plain, &drafts); err != nil {
		return nil, fmt.Errorf("cannot read the drafts (remove %s to go on without them): %w", path, err)
	}
	return drafts, nil
}

func (w Workplace) keepDrafts(drafts []Draft) error {
	plain, err := json.Marshal(drafts)
	if err != nil {
		return err
	}
	path := w.draftsPath()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("cannot keep a draft: %w", err)
	}
	sealed := gitlog.SealRecord(&w.Clone.Device().Local, stateContext(filepath.Base(path)), 0, plain)
	if err := gitlog.ReplaceFile(path, sealed, 0o600); err != nil {
		return fmt.Errorf("cannot keep a draft: %w", err)
	}
	return nil
}

// draft keeps an agent's fact for review; one of the same name and kind takes the place of that.
func (w Workplace) draft(r gitlog.RememberRequest) (any, error) {
	if gitlog.Withheld(r.Name) || gitlog.Withheld(r.Text) {
		return nil, &gitlog.Refusal{Sentence: "the text looks like it holds a credential; nothing was kept"}
	}
	drafts, err := w.Drafts()
	if err != nil {
		return nil, err
	}
	kept := drafts[:0]
	for _, d := range drafts {
		if d.Request.Name != r.Name || d.Request.Kind != r.Kind {
			kept = append(kept, d)
		}
	}
	if len(kept) >= maxDrafts {
		return nil, &gitlog.Refusal{Sentence: fmt.Sprintf("%d drafts wait for your user; ask for `knoot confirm NAME` or `knoot forget NAME` first", len(kept))}
	}
	if err := w.keepDrafts(append(kept, Draft{At: w.Clone.NewEntry(r.Kind).Time, Request: r})); err != nil {
		return nil, err
	}
	return &Drafted{Draft: true, Name: r.Name}, nil
}

// confirmDraft publishes the draft of that name, if there is one.
func (w Workplace) confirmDraft(ctx context.Context, r gitlog.ConfirmRequest) (answer any, found bool, err error) {
	drafts, err := w.Drafts()
	if err != nil {
		return nil, false, err
	}
	i := draftNamed(drafts, r.Name)
	if i < 0 {
		return nil, false, nil
	}
	if r.Author.By != gitlog.ByPerson {
		return nil, true, &gitlog.Refusal{Sentence: fmt.Sprintf("%q is a draft, which your user publishes: ask them to run `knoot confirm %s`", r.Name, r.Name)}
	}
	if answer, err = written(w.Clone.Remember(ctx, w.Tree, drafts[i].Request)); err != nil {
		return nil, true, err
	}
	return answer, true, w.keepDrafts(append(drafts[:i], drafts[i+1:]...))
}

// forgetDraft drops a draft: by name, or the last one of the author's session.
func (w Workplace) forgetDraft(r gitlog.ForgetRequest) (found bool, err error) {
	drafts, err := w.Drafts()
	if err != nil {
		return false, err
	}
	i := draftNamed(drafts, r.Name)
	if r.Last && w.Config.Memory.AgentFacts == "review" {
		for n, d := range drafts {
			if d.Request.Author == r.Author {
				i = n
			}
		}
	}
	if i < 0 {
		return false, nil
	}
	return true, w.keepDrafts(append(drafts[:i], drafts[i+1:]...))
}

func draftNamed(drafts []Draft, name string) int {
	for i, d := range drafts {
		if name != "" && d.Request.Name == name {
			return i
		}
	}
	return -1
}
