package daemon

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"knoot.dev/knoot/arbiter"
	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// messageTime is how long whoever sends a message waits for the relay to take it.
const messageTime = 3 * time.Second

// elsewhere returns who on other machines is meant by a name, as they are called on screen: sessions that are at work there, and
// members with a device there, who need not be at work. For all it is everybody, if anybody is.
func (r *relayRepository) elsewhere(to string) (labels []string) {
	standing := r.standing()
	label := labelsOf(standing)
	for _, s := range standing {
		a := addressee{label: label(&s), names: []string{agentLabel(sessionKey{Agent: s.Agent, ID: s.Session})}, session: s.Session}
		if !s.Person && (to == toAll || a.called(to)) {
			labels = append(labels, a.label)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names.blinding == nil {
		return labels
	}
	roster := r.names.blinding.Roster
	for _, d := range roster.Devices {
		m := roster.Members[d.Member]
		if d.Pending || d.ID == r.names.device || m == nil {
			continue
		}
		address := strings.ToLower(m.Address)
		if (to == toAll || strings.EqualFold(to, m.Address) || strings.EqualFold(to, m.Name)) && address != "" && !slices.Contains(labels, address) {
			labels = append(labels, address)
		}
	}
	slices.Sort(labels)
	return labels
}

func labelsOf(sessions []StandingSession) func(*StandingSession) string {
	return (&Standing{Sessions: sessions}).Label
}

// message sends a message to the other machines. What it returns says that it is there, or why not.
func (r *relayRepository) message(ctx context.Context, by party, gitDir string, msg *message) error {
	conn := r.open()
	if conn == nil {
		return &gitlog.Refusal{Sentence: fmt.Sprintf("the relay cannot be reached, so nothing was sent to %s, who is on another machine", quoteText(msg.To, maxNameBytes))}
	}
	ctx, cancel := context.WithTimeout(ctx, messageTime)
	defer cancel()
	r.flushed(ctx)
	r.mu.Lock()
	who := r.names.who(by, gitDir)
	sealed := r.names.seal(gitlog.Message, who.Session, r.clock.now(), relayDetail{Agent: by.Key.Agent, Session: by.Key.ID, Name: msg.name, Text: msg.Text,
		ID: msg.ID, To: msg.To, Urgent: msg.Urgent})
	m := &wire.Append{Repository: r.a.id.repository, Head: r.names.blinding.Roster.Head, Acts: []arbiter.Request{declare(who, gitlog.Message, sealed)}}
	r.mu.Unlock()
	if sealed == nil || !fits(m) {
		return &gitlog.Refusal{Sentence: "the message cannot be sealed for the team, so it was not sent to other machines"}
	}
	if _, err := r.link.ask(ctx, conn, m); err != nil {
		r.refused(err)
		return fmt.Errorf("the relay did not take the message for other machines: %w", err)
	}
	return nil
}

// deliver puts a message from another machine into the mailboxes here that it is for.
func (r *relayRepository) deliver(e *arbiter.Event, d relayDetail) {
	oc := r.clone()
	if oc == nil || len(d.ID) != 32 || d.To == "" || d.Text == "" || len(d.Text) > maxMessage {
		return
	}
	msg := &message{ID: d.ID, Repository: repositoryOf(oc.clone), At: r.d.now(), Sender: mailbox("~" + hex.EncodeToString(e.Session[:])), Kind: "agent",
		From: agentLabel(sessionKey{Agent: d.Agent, ID: d.Session}), To: d.To, Urgent: d.Urgent && d.To != toAll, Text: d.Text}
	if d.Name != "" && !strings.Contains(d.Name, "@") { // an agent that is called like a person would be taken for them
		msg.From = d.Name
	}
	if e.Person {
		r.mu.Lock()
		msg.Kind, msg.From = "person", r.address(e.Device)
		r.mu.Unlock()
	}
	for _, a := range r.d.present(r.ctx, oc).here {
		if a.deaf || a.owner != "" && !e.Person {
			continue
		}
		if d.To == toAll && !a.away || d.To != toAll && a.called(d.To) {
			msg.Unread = append(msg.Unread, a.box)
		}
	}
	if len(msg.Unread) == 0 {
		return
	}
	if err := r.d.mail.send(msg); err != nil {
		r.d.log.Warn("a message from another machine is not kept", "error", err)
	}
}
