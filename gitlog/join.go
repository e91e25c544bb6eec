package gitlog

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// JoinOptions says who joins a team and with what.
type JoinOptions struct {
	Key           string // an invitation or recovery key; "" asks to be let in
	Name, Address string // of the person, sealed to the team's members; for a request
	Label         string // the device's, such as its host's name
	Private       bool   // as for Init
	Progress      func(line string)
}

// JoinReport says how joining went.
type JoinReport struct {
	InitReport
	Waiting     bool      // a request was made and an admin has to answer it
	Device      DeviceID  // by which the admin names the request
	Fingerprint string    // of the request, to be compared with what the admin sees
	Expires     time.Time // of the request
}

// Join brings this device into the team of the clone's repository: with a key at once, without one by a request that an admin
// answers. Both end with the history readable: after a request, at the first sync after it was answered. A device that is in the
// team already is only set up in this clone.
func Join(ctx context.Context, repo *Repository, home *Home, o JoinOptions) (*JoinReport, error) {
	if repo.Root == "" {
		return nil, errors.New("this is a bare repository, where nobody works: run `knoot join` in a clone of it")
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	var key *Invitation
	if o.Key != "" {
		var err error
		if key, err = ParseInvitation(o.Key); err != nil {
			return nil, err
		}
	}
	report := &JoinReport{}
	s := &setup{InitOptions: InitOptions{Private: o.Private, Progress: o.Progress}, repo: repo, home: home, joining: true, key: key, report: &report.InitReport}
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	report.Device = s.device.ID
	c, err := OpenClone(ctx, repo, home)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.Lock(ctx); err != nil {
		return nil, err
	}
	if _, err := c.Accept(ctx); err != nil { // the answer to an earlier request may have come
		return nil, err
	}
	if c.roster == nil {
		return nil, fmt.Errorf("the team %s cannot be read here: %s", c.settings.Team, c.problems[rosterRef].What)
	}
	d := c.roster.device(c.device.ID)
	switch {
	case d != nil && d.until != 0:
		return nil, fmt.Errorf("this device was removed from the team by entry %d of the roster, and a removed key never comes back: move device.key, device.age and device.local away from %s and join again as a new device", d.until, home.Dir)
	case d != nil && key != nil && !key.Recovery && c.roster.Devices[key.Device()] != nil:
		return nil, fmt.Errorf("this device is in the team already, as %s: the key is not needed here and still open, for another device", c.Member())
	case d != nil:
		report.Member = c.Member()
		return report, nil
	case key == nil:
		return report, c.request(ctx, o, report)
	}
	_, err = c.changeRosterAs(ctx, key.device, func(r *Roster) error { return key.usable(r, MillisOf(c.now())) }, SyncOptions{Ask: true, Progress: o.Progress},
		func(change *RosterChange) error {
			if key.Recovery {
				return change.AddDevice(c.device, o.Label)
			}
			return change.Join(c.device, o.Label)
		})
	if err != nil {
		return nil, err
	}
	report.Member = c.Member()
	report.wrote("%s: this device", rosterRef)
	return report, nil
}

// requestAgain is how long before its end a request is made anew.
const requestAgain = Millis(24 * 60 * 60 * 1000)

// request asks the team's admins to let this device in.
func (c *Clone) request(ctx context.Context, o JoinOptions, report *JoinReport) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	at, err := c.rosterRemote()
	if err != nil {
		return err
	}
	if at == nil {
		return ErrNoRemote
	}
	name := "team/request/" + c.device.ID.String()
	before, err := openRefs(c.Repo).read(ctx, at.inbox+name)
	if err != nil {
		return err
	}
	objects, err := c.store(ctx)
	if err != nil {
		return err
	}
	now := MillisOf(c.now())
	var asked *JoinRequest
	if before != "" {
		// One that is none of ours in this ref: what we push goes on from it, or the host would refuse it.
		if asked, err = readRequest(ctx, objects, before, c.roster.Team); err != nil || asked.Device != c.device.ID {
			asked = nil
		}
	}
	if asked == nil || asked.Expires() < now+requestAgain || asked.Time > now+clockSkew {
		data, err := encodeRequest(c.device, c.roster, &JoinRequest{Time: now, Name: o.Name, Address: o.Address, Label: o.Label})
		if err != nil {
			return err
		}
		if asked, err = parseRequest(data, c.roster.Team); err != nil { // never write what could not be read
			return err
		}
		tip, err := objects.writeCommit(ctx, before, map[string][]byte{requestFile: data}, now.Time().Truncate(time.Second))
		if err != nil {
			return err
		}
		o.Progress(fmt.Sprintf("Asking the team at %s. Written there: %s%s, who asks sealed to the members.", at, ownRefs, name))
		results, err := openHost(c.Repo, at, gitForeground).push(ctx, refPush{Name: ownRefs + name, Tip: tip})
		if err == nil && results[0].Failure != nil {
			err = results[0].Failure
		}
		if err != nil {
			return err
		}
		if err := confirm(ctx, openRefs(c.Repo), at.inbox+name, tip); err != nil {
			return err
		}
		report.wrote("%s on %s: the request", ownRefs+name, at)
	}
	report.Waiting, report.Fingerprint, report.Expires = true, asked.Fingerprint(), asked.Expires().Time()
	return nil
}

// Waiting returns this device's own request while it waits for an admin's answer, else nil.
func (c *Clone) Waiting(ctx context.Context) (*JoinRequest, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.roster == nil || c.roster.device(c.device.ID) != nil {
		return nil, nil
	}
	at, err := c.rosterRemote()
	if err != nil || at == nil {
		return nil, err
	}
	tip, err := openRefs(c.Repo).read(ctx, at.inbox+"team/request/"+c.device.ID.String())
	if err != nil || tip == "" {
		return nil, err
	}
	objects, err := c.store(ctx)
	if err != nil {
		return nil, err
	}
	asked, err := readRequest(ctx, objects, tip, c.roster.Team)
	if err != nil || asked.Device != c.device.ID || MillisOf(c.now()) >= asked.Expires() {
		return nil, nil // it has to be made again
	}
	return asked, nil
}

// DropRequest takes a request off the host, answered or not. It is for admins; a host that lets only its maker delete it keeps it
// until it ends.
func (c *Clone) DropRequest(ctx context.Context, device DeviceID) error {
	c.syncing.Lock()
	defer c.syncing.Unlock()
	c.writing.Lock()
	defer c.writing.Unlock()
	at, err := c.rosterRemote()
	if err != nil {
		return err
	}
	if at == nil {
		return ErrNoRemote
	}
	name := "team/request/" + device.String()
	var results []pushResult
	c.onNetwork(func() { results, err = openHost(c.Repo, at, gitBackground).push(ctx, refPush{Name: ownRefs + name}) })
	if err == nil && results[0].Failure != nil {
		err = results[0].Failure
	}
	if err != nil {
		return err
	}
	refs := openRefs(c.Repo)
	if tip, err := refs.read(ctx, at.inbox+name); err != nil || tip == "" {
		return err
	}
	return refs.remove(ctx, at.inbox+name)
}

// CancelExpired takes back the invitations that ended unused, each with new epochs of its rooms, since whoever has the key and a
// clone could read them until then. It does nothing where there is none or this device is no admin's.
func (c *Clone) CancelExpired(ctx context.Context) (cancelled int, err error) {
	if len(c.expired()) == 0 {
		return 0, nil
	}
	_, err = c.ChangeRoster(ctx, SyncOptions{}, func(change *RosterChange) error {
		cancelled = 0
		for _, d := range expiredOf(change.Before(), change.now) {
			if err := change.CancelInvitation(d); err != nil {
				return err
			}
			cancelled++
		}
		return nil
	})
	return cancelled, err
}

func (c *Clone) expired() []DeviceID {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.roster == nil || !c.roster.authorOf(c.device.ID).admin {
		return nil
	}
	return expiredOf(c.roster, MillisOf(c.now()))
}

func expiredOf(r *Roster, now Millis) []DeviceID {
	var ids []DeviceID
	for id, d := range r.Devices {
		if d.Pending && now >= d.Expires {
			ids = append(ids, id)
		}
	}
	return ids
}
