package daemon

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"knoot.dev/knoot/daemon/socket"
	"knoot.dev/knoot/gitlog"
)

// toAll addresses everybody who is here.
const toAll = "all"

// minPrefix is how much of a session's id names it.
const minPrefix = 6

// addressee is somebody here whom a message can be sent to.
type addressee struct {
	box     mailbox
	label   string   // what messages from and to them are shown with, and can be sent to
	names   []string // what else they are called
	session string   // a session's id; "" for a person, and for an agent that is not at work
	kind    string   // agent or person

	key        sessionKey // of the session; zero as session is ""
	owner      string     // of a companion: the id of the agent that it talks to, and to no other
	deaf       bool       // it gets no messages
	registered bool       // an agent that broadcasts are for
	away       bool       // an agent that is not at work: it hears what is sent to it, not what is sent to all
}

// addressees are those of a repository who are on this machine: sessions first, in order of their labels, then people.
type addressees struct {
	here []addressee
	// away are members who are not on this machine, by address and name.
	away []string
}

// repositoryOf says which repository a clone is of; clones of one repository say the same.
func repositoryOf(clone *gitlog.Clone) string {
	s := clone.Settings()
	return hex.EncodeToString(s.Team[:]) + "/" + hex.EncodeToString(s.Repository[:])
}

func boxOf(key sessionKey) mailbox { return mailbox(key.String()) }

// personalBox is the mailbox of a session's person: the member that KNOOT_USER names, whoever else it names, or this device's member.
func personalBox(clone *gitlog.Clone, user string) mailbox {
	return mailbox("@" + personOf(clone, user))
}

// personOf is the address of a session's person. user is KNOOT_USER, "" where it is not set.
func personOf(clone *gitlog.Clone, user string) string {
	roster := clone.Roster()
	user = strings.ToLower(strings.TrimSpace(user))
	if roster == nil {
		return user
	}
	if user == "" {
		if m := roster.MemberOf(clone.Device().ID); m != nil {
			return strings.ToLower(m.Address)
		}
		return ""
	}
	for _, m := range roster.Members {
		if user == strings.ToLower(m.Address) || user == strings.ToLower(m.Name) {
			return strings.ToLower(m.Address)
		}
	}
	return user
}

// agentLabel names a session that has no name of its own.
func agentLabel(key sessionKey) string {
	id := []rune(key.ID)
	return key.Agent + "-" + string(id[:min(len(id), 8)])
}

// present finds who is here of a clone's repository, in all its clones and worktrees.
func (d *daemon) present(ctx context.Context, oc *openClone) *addressees {
	type lodger struct {
		key                sessionKey
		name, person, home string
	}
	var all []lodger
	now := d.now()
	d.state.mu.Lock()
	for key, s := range d.state.sessions {
		if s.live(now) {
			all = append(all, lodger{key, s.name, s.person, s.home})
		}
	}
	d.state.mu.Unlock()
	repository := repositoryOf(oc.clone)
	out := &addressees{}
	people := map[string]bool{personOf(oc.clone, ""): true}
	named := map[string]int{}
	agents := map[sessionKey]int{} // by session, where in out.here
	if d.coordinator != nil {
		for _, each := range d.coordinator.Agents(repository) {
			if each.Session != (sessionKey{}) {
				agents[each.Session] = len(out.here)
			}
			named[strings.ToLower(each.ID)]++
			out.here = append(out.here, addressee{box: agentBox(each.ID), label: each.ID, names: []string{each.ID}, kind: "agent", owner: each.Owner,
				deaf: each.Deaf, registered: each.Registered, away: !each.Registered})
		}
	}
	for _, s := range all {
		// One that cannot be opened, or not in time, is not of this repository as far as anybody can tell.
		wt, err := d.clones.find(ctx, s.home)
		if s.home == "" || err != nil || repositoryOf(wt.clone.clone) != repository {
			continue
		}
		people[personOf(oc.clone, s.person)] = true
		if at, ok := agents[s.key]; ok { // the two are one
			a := &out.here[at]
			a.names, a.session, a.key, a.away = append(a.names, agentLabel(s.key)), s.key.ID, s.key, false
			continue
		}
		named[strings.ToLower(s.name)]++
		a := addressee{box: boxOf(s.key), label: agentLabel(s.key), names: []string{agentLabel(s.key)}, session: s.key.ID, key: s.key, kind: "agent"}
		if s.name != "" {
			a.label, a.names = s.name, append(a.names, s.name)
		}
		out.here = append(out.here, a)
	}
	for i, a := range out.here {
		if named[strings.ToLower(a.label)] > 1 {
			out.here[i].label = a.names[0] // an agent's is its id
		}
	}
	slices.SortFunc(out.here, func(a, b addressee) int {
		return strings.Compare(a.label+"\x00"+string(a.box), b.label+"\x00"+string(b.box))
	})
	members := map[string]*gitlog.Member{}
	if roster := oc.clone.Roster(); roster != nil {
		for _, m := range roster.Members {
			members[strings.ToLower(m.Address)] = m
			if !people[strings.ToLower(m.Address)] {
				out.away = append(out.away, m.Address, m.Name)
			}
		}
	}
	var addresses []string
	for address := range people {
		addresses = append(addresses, address)
	}
	slices.Sort(addresses)
	for _, address := range addresses {
		if address == "" {
			continue
		}
		a := addressee{box: mailbox("@" + address), label: address, kind: "person"}
		if m := members[address]; m != nil && m.Name != "" {
			a.names = []string{m.Name}
		}
		out.here = append(out.here, a)
	}
	return out
}

// find returns whom a name means, never the sender. A *gitlog.Refusal says that it is nobody, or several. Whom the sender may not
// talk to is not there, as far as it is told.
func (as *addressees) find(to string, sender *addressee) ([]addressee, error) {
	var found []addressee
	for _, a := range as.here {
		switch {
		case a.box != sender.box && !sender.reaches(&a):
		case to == toAll && a.box != sender.box && !a.deaf && !a.away, to != toAll && a.called(to):
			found = append(found, a)
		}
	}
	if i := slices.IndexFunc(found, func(a addressee) bool { return a.box == agentBox(to) }); i >= 0 && to != toAll {
		found = found[i : i+1] // an id is somebody's alone, whatever a session calls itself
	}
	switch {
	case to == toAll && len(found) == 0:
		return nil, &gitlog.Refusal{Sentence: "nobody else is here, so nothing was sent"}
	case to == toAll:
		return found, nil
	case len(found) > 1:
		return nil, &gitlog.Refusal{Sentence: fmt.Sprintf("%s means several: %s; name one of them", quoteText(to, maxNameBytes), orAll(found, nil))}
	case len(found) == 0 && slices.ContainsFunc(as.away, func(name string) bool { return name != "" && strings.EqualFold(name, to) }):
		return nil, &gitlog.Refusal{Sentence: fmt.Sprintf("%s is not on this machine, and messages stay on it; here: %s", quoteText(to, maxNameBytes), orAll(as.here, sender))}
	case len(found) == 0:
		return nil, &gitlog.Refusal{Sentence: fmt.Sprintf("nobody here is called %s; here: %s", quoteText(to, maxNameBytes), orAll(as.here, sender))}
	case found[0].box == sender.box:
		return nil, &gitlog.Refusal{Sentence: "that is you; here: " + orAll(as.here, sender)}
	case found[0].deaf:
		return nil, &gitlog.Refusal{Sentence: fmt.Sprintf("%s is a shell, which gets no messages", quoteText(found[0].label, maxNameBytes))}
	}
	return found, nil
}

// reaches reports whether one may talk to another: companions talk to their owners, and only these, and people, to them.
func (a *addressee) reaches(other *addressee) bool {
	switch {
	case a.owner != "":
		return other.box == agentBox(a.owner)
	case other.owner != "":
		return a.kind == "person" || a.box == agentBox(other.owner)
	}
	return true
}

// called reports whether an addressee is meant by a name: their own, or how a session's id begins.
func (a *addressee) called(to string) bool {
	if a.session != "" && len(to) >= min(minPrefix, len(a.session)) && strings.HasPrefix(a.session, to) {
		return true
	}
	return strings.EqualFold(to, a.label) || slices.ContainsFunc(a.names, func(name string) bool { return strings.EqualFold(to, name) })
}

// orAll lists addressees, but for the sender and whom it may not talk to; nil: all.
func orAll(of []addressee, sender *addressee) string {
	var labels []string
	for _, a := range of {
		if sender != nil && (a.box == sender.box || a.deaf || !sender.reaches(&a)) {
			continue
		}
		label := a.label
		if len(a.names) > 0 && a.names[0] != label {
			label += " (" + a.names[0] + ")"
		}
		labels = append(labels, label)
	}
	if len(labels) == 0 {
		return "nobody else"
	}
	return strings.Join(labels, ", ")
}

// sender says whom a command's message is from.
func (d *daemon) sender(caller *socket.Caller, oc *openClone, here *addressees) addressee {
	author, user := d.authorOf(caller), ""
	if caller != nil {
		user = caller.User
	}
	if key, ok := parseSession(author.Session); ok {
		for _, a := range here.here {
			if a.key == key {
				return a
			}
		}
		return addressee{box: boxOf(key), label: agentLabel(key), kind: "agent"}
	}
	if author.By == gitlog.ByPerson {
		return addressee{box: personalBox(oc.clone, user), label: personOf(oc.clone, user), kind: "person"}
	}
	return addressee{label: personOf(oc.clone, user), kind: "agent"}
}

// reader says whose messages a command reads.
func (d *daemon) reader(caller *socket.Caller, oc *openClone) reader {
	key, ok := parseSession(d.authorOf(caller).Session)
	if !ok {
		user := ""
		if caller != nil {
			user = caller.User
		}
		return reader{person: personalBox(oc.clone, user)}
	}
	if agent, ok := d.agentOf(key); ok {
		return d.readerOf(oc, key, agentBox(agent.ID))
	}
	return d.readerOf(oc, key, "")
}

// readerOf is the reader that is a session, and perhaps an agent with a mailbox of its own.
func (d *daemon) readerOf(oc *openClone, key sessionKey, agent mailbox) reader {
	d.state.mu.Lock()
	user := ""
	if s := d.state.sessions[key]; s != nil {
		user = s.person
	}
	d.state.mu.Unlock()
	return reader{session: boxOf(key), agent: agent, person: personalBox(oc.clone, user)}
}

// authorOf says for whom a command works.
func (d *daemon) authorOf(caller *socket.Caller) gitlog.Author {
	now := d.now()
	d.state.mu.Lock()
	defer d.state.mu.Unlock()
	return AuthorOf(caller, d.state.sessions.live(now))
}

// parseSession reads what sessionKey.String writes.
func parseSession(text string) (sessionKey, bool) {
	agent, id, ok := strings.Cut(text, ":")
	return sessionKey{Agent: agent, ID: id}, ok
}
