package daemon

import "slices"

// narrow makes what a command line may have written what it did write: of the files that were looked at when it began, those
// that are not as they were. What the line names now that it has run is of no use: a glob matches other files than it did.
func (c *hookCall) narrow() {
	if !c.h.Shell || c.h.Event != EventPostTool && c.h.Event != eventToolFailure {
		return
	}
	for i := range c.places {
		p := &c.places[i]
		if p.tree == nil {
			continue
		}
		stamps := p.tree.clone.arbiter.stampsOf(c.key, c.callIn(p.Root))
		if stamps == nil {
			continue
		}
		p.Writes, p.Trees = nil, nil
		for path, was := range stamps {
			if now := stampOf(p.Root, path); now != was && !now.Dir {
				p.Writes = append(p.Writes, path)
			}
		}
		slices.Sort(p.Writes)
	}
}

// stampsOf returns how files were when an open call began; nil: there is no such call, or nobody looked.
func (a *arbitration) stampsOf(session sessionKey, key callKey) map[string]stamp {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.lodgers[session]; l != nil {
		if call := l.calls[key]; call != nil {
			return call.stamps
		}
	}
	return nil
}
