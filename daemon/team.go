package daemon

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"knoot.dev/knoot/gitlog"
)

// TeamRequest is the body of the operation team: one change of the team, done on the host or not at all.
type TeamRequest struct {
	// Do is invite, admit, recovery, name_admin, dismiss_admin, remove_member, remove_device, make_room, grant, revoke,
	// remove_room, set_areas or trust.
	Do        string            `json:"do"`
	Address   string            `json:"address,omitempty"` // of the member concerned
	Name      string            `json:"name,omitempty"`    // of a new member
	Label     string            `json:"label,omitempty"`   // of a new device
	Admin     bool              `json:"admin,omitempty"`   // with invite and admit: the member may change the team
	Request   string            `json:"request,omitempty"` // id of the device that asks, or how it begins
	Device    string            `json:"device,omitempty"`  // an id, or how it begins
	Room      string            `json:"room,omitempty"`
	Addresses []string          `json:"addresses,omitempty"` // with make_room: who is in it
	Areas     map[string]string `json:"areas,omitempty"`     // with set_areas: room by prefix
	Since     gitlog.Millis     `json:"since,omitempty"`     // with removals: from when on nothing counts; 0: from now on
	Head      string            `json:"head,omitempty"`      // with trust: the hash of a roster entry, hex
}

// TeamAnswer is the answer to the operation team.
type TeamAnswer struct {
	Changed bool          `json:"changed"`
	Key     string        `json:"key,omitempty"`     // with invite and recovery: the secret, said this once
	Expires gitlog.Millis `json:"expires,omitempty"` // of an invitation
	Device  string        `json:"device,omitempty"`  // the id of the one concerned
	Member  string        `json:"member,omitempty"`  // the name of the one concerned
	Address string        `json:"address,omitempty"`
}

// changeTeam does one change. ask: git may ask a person for a password.
func changeTeam(ctx context.Context, clone *gitlog.Clone, r TeamRequest, how gitlog.SyncOptions) (*TeamAnswer, error) {
	answer := &TeamAnswer{}
	if r.Do == "trust" {
		var head gitlog.Digest
		if n, err := hex.Decode(head[:], []byte(r.Head)); err != nil || n != len(head) || len(r.Head) != 2*len(head) {
			return nil, &MisuseError{Sentence: "a roster entry is named by the 64 hex digits of its hash: `knoot status` shows it"}
		}
		answer.Changed = true
		return answer, clone.TrustRoster(ctx, head)
	}
	var request *gitlog.JoinRequest
	if r.Do == "admit" {
		// What was fetched last may be older than the request.
		if _, err := clone.Sync(ctx, gitlog.SyncOptions{Fetch: true, Ask: how.Ask, Progress: how.Progress}); err != nil && !errors.Is(err, gitlog.ErrNoRemote) {
			return nil, err
		}
		var err error
		if request, err = findRequest(ctx, clone, r.Request); err != nil {
			return nil, err
		}
	}
	var invitation *gitlog.Invitation
	before := clone.Roster()
	after, err := clone.ChangeRoster(ctx, how, func(change *gitlog.RosterChange) (err error) {
		invitation = nil
		switch r.Do {
		case "invite":
			if invitation, err = change.Invite(r.Address, r.Name, r.Label); err == nil {
				answer.Device = invitation.Device().String()
			}
		case "recovery":
			invitation, err = change.AddRecovery()
		case "admit":
			answer.Device = request.Device.String()
			err = change.Admit(request, r.Address, r.Name)
		case "name_admin":
			err = change.NameAdmin(r.Address)
		case "dismiss_admin":
			err = change.DismissAdmin(r.Address)
		case "remove_member":
			if m := change.Before().FindMember(r.Address); m != nil {
				answer.Member, answer.Address = m.Name, m.Address
			}
			err = change.RemoveMember(r.Address, r.Since)
		case "remove_device":
			var device *gitlog.RosterDevice
			if device, err = findDevice(change.Before(), r.Device); err == nil {
				answer.Device = device.ID.String()
				if m := change.Before().MemberOf(device.ID); m != nil {
					answer.Member, answer.Address = m.Name, m.Address
				}
				err = change.RemoveDevice(device.ID, r.Since)
			}
		case "make_room":
			_, err = change.MakeRoom(r.Room, r.Addresses...)
		case "grant":
			err = change.Grant(r.Room, r.Address)
		case "revoke":
			err = change.Revoke(r.Room, r.Address, r.Since)
		case "remove_room":
			err = change.RemoveRoom(r.Room)
		case "set_areas":
			_, err = change.SetAreas(r.Areas)
		default:
			err = &MisuseError{Sentence: fmt.Sprintf("a team cannot be changed by %q", r.Do)}
		}
		if err == nil && r.Admin && (r.Do == "invite" || r.Do == "admit") {
			if m := change.Before().FindMember(r.Address); m == nil || !m.Admin {
				err = change.NameAdmin(r.Address)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if request != nil {
		_ = clone.DropRequest(ctx, request.Device) // a host that keeps it loses nothing: it is answered, and ends by itself
	}
	answer.Changed = before == nil || before.Head != after.Head
	if invitation != nil {
		answer.Key, answer.Expires, answer.Device = invitation.Key(), invitation.Expires, invitation.Device().String()
	}
	if m := after.FindMember(r.Address); m != nil {
		answer.Member, answer.Address = m.Name, m.Address
	}
	return answer, nil
}

// leastPrefix is how many digits of an id have to be typed.
const leastPrefix = 4

// findDevice returns the device of a roster whose id begins like that.
func findDevice(r *gitlog.Roster, id string) (*gitlog.RosterDevice, error) {
	id = strings.ToLower(strings.TrimSpace(id))
	if len(id) < leastPrefix {
		return nil, &MisuseError{Sentence: fmt.Sprintf("%q is no device: name it by its id, at least the first %d digits; `knoot member ls` lists them", id, leastPrefix)}
	}
	var found *gitlog.RosterDevice
	for _, d := range r.Devices {
		if strings.HasPrefix(d.ID.String(), id) {
			if found != nil {
				return nil, fmt.Errorf("the ids of two devices begin with %s: type more of it", id)
			}
			found = d
		}
	}
	if found == nil {
		return nil, fmt.Errorf("the team has no device %s: `knoot member ls` lists which there are", id)
	}
	return found, nil
}

// findRequest returns the open request of the device whose id begins like that.
func findRequest(ctx context.Context, clone *gitlog.Clone, id string) (*gitlog.JoinRequest, error) {
	id = strings.ToLower(strings.TrimSpace(id))
	if len(id) < leastPrefix {
		return nil, &MisuseError{Sentence: fmt.Sprintf("%q is no request: name it by the device's id, at least the first %d digits; `knoot status` lists them", id, leastPrefix)}
	}
	requests, _, err := clone.Requests(ctx)
	if err != nil {
		return nil, err
	}
	var found *gitlog.JoinRequest
	for _, q := range requests {
		if strings.HasPrefix(q.Device.String(), id) {
			if found != nil {
				return nil, fmt.Errorf("two requests begin with %s: type more of it", id)
			}
			found = q
		}
	}
	if found == nil {
		return nil, fmt.Errorf("nobody asks to join with the device %s, or no more: `knoot status` lists who does", id)
	}
	return found, nil
}
