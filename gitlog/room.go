package gitlog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Which room an entry is sealed to: that of the paths that it is about, or that of the entry which it confirms, replaces or
// ends. An entry stays in the room that it was sealed to when areas move.

// inRoom says whether this device may write into a room, and can read it: it is a member's, and the current epoch opens. mu or
// writing is held.
func (c *Clone) inRoom(id RoomID) bool {
	room, device := c.roster.Rooms[id], c.roster.Devices[c.device.ID]
	if room == nil || device == nil {
		return false
	}
	_, in := room.Members[device.Member]
	return in && c.keys[room.Current().RoomEpoch] != nil
}

// roomName is what people call a room.
func (r *Roster) roomName(id RoomID) string {
	if room := r.Rooms[id]; room != nil && room.Name != "" {
		return room.Name
	}
	if id == r.General {
		return "general"
	}
	return id.String()
}

func (r *Roster) roomNames(ids []RoomID) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = r.roomName(id)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// RoomName returns what people call a room, its id in hex where that is not known.
func (c *Clone) RoomName(id RoomID) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.roster == nil {
		return id.String()
	}
	return c.roster.roomName(id)
}

// room finds the room that --room names, by name or id; this device has to be in it.
func (c *Clone) room(name string) (RoomID, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.mayWrite(); err != nil {
		return RoomID{}, err
	}
	for id := range c.roster.Rooms {
		if (name == c.roster.roomName(id) || name == id.String()) && c.inRoom(id) {
			return id, nil
		}
	}
	return RoomID{}, refuse("there is no room %q here, or you are not in it: leave --room out, and the paths say which it is", name)
}

// roomOfPaths chooses the room of what is about these paths: the one named, else the one that they all lie in, else that of all
// members.
func (c *Clone) roomOfPaths(named string, paths []FactPath) (RoomID, error) {
	want := RoomID{}
	if named != "" {
		var err error
		if want, err = c.room(named); err != nil {
			return RoomID{}, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.mayWrite(); err != nil {
		return RoomID{}, err
	}
	rooms, err := c.roomsOfPaths(paths)
	if err != nil {
		return RoomID{}, err
	}
	switch {
	case named != "" && len(rooms) == 1 && rooms[0] != c.roster.General && rooms[0] != want:
		return RoomID{}, refuse("these paths lie in the room %s, whose members alone read what is about them: leave --room out", c.roster.roomName(rooms[0]))
	case named != "":
		return want, nil
	case len(rooms) > 1:
		return RoomID{}, refuse("the paths lie in several rooms (%s), and not everybody is in all of them: say with --room who may read it, or name paths of one room", c.roster.roomNames(rooms))
	case len(rooms) == 1:
		return rooms[0], nil
	}
	return c.roster.General, nil
}

// roomsOfPaths lists the rooms in which paths lie. A path in a room that this device cannot open is refused. mu is held.
func (c *Clone) roomsOfPaths(paths []FactPath) ([]RoomID, error) {
	var rooms []RoomID
	for _, p := range paths {
		id := c.roster.RoomOf(p.Path)
		if !c.inRoom(id) {
			return nil, refuse("%s belongs to the room %s, which you are not in: nothing about it is written", printable(p.Path), c.roster.roomName(id))
		}
		if !slices.Contains(rooms, id) {
			rooms = append(rooms, id)
		}
	}
	slices.SortFunc(rooms, compareRooms)
	return rooms, nil
}

func compareRooms(a, b RoomID) int { return bytes.Compare(a[:], b[:]) }

// roomOfEntry chooses the room of an entry that comes without one.
func (c *Clone) roomOfEntry(e *Entry) (RoomID, error) {
	of := func(ids []EntryID) (RoomID, bool) {
		for _, id := range ids {
			if s, ok := c.Memory().entry(id); ok {
				return s.Room, true
			}
		}
		return RoomID{}, false
	}
	var paths []FactPath
	switch {
	case e.Fact != nil && e.Kind == KindConfirmation && e.Fact.Confirms != nil:
		if room, ok := of([]EntryID{*e.Fact.Confirms}); ok {
			return room, nil
		}
		paths = e.Fact.Paths
	case e.Tombstone != nil:
		if room, ok := of(e.Tombstone.Targets); ok {
			return room, nil
		}
	case e.Fact != nil:
		paths = e.Fact.Paths
	case e.Plan != nil:
		paths = e.Plan.Paths
	}
	return c.roomOfPaths("", paths)
}

// splitEvent is an event as each room may hear of it: the same but for its paths, and without the text where there is more
// than one room. A path in a room that this device cannot open is left out, and so is an event that has no other. One without
// paths is everybody's. mu is held.
func (c *Clone) splitEvent(e *Entry) map[RoomID]*Entry {
	if e.Event == nil || len(e.Event.Paths) == 0 {
		return map[RoomID]*Entry{c.roster.General: e}
	}
	paths := map[RoomID][]EventPath{}
	for _, p := range e.Event.Paths {
		id := c.roster.RoomOf(p.Path)
		paths[id] = append(paths[id], p)
	}
	parts := make(map[RoomID]*Entry, len(paths))
	for id, own := range paths {
		if !c.inRoom(id) {
			continue
		}
		part := e
		if len(paths) > 1 {
			entry, event := Entry{Kind: e.Kind, Time: e.Time, Nonce: e.Nonce, Author: e.Author}, *e.Event
			event.Paths, event.Text = own, ""
			entry.Event = &event
			part = &entry
		}
		parts[id] = part
	}
	return parts
}

// mayWriteTo says why nothing can be written into a room, nil where it can.
func (c *Clone) mayWriteTo(id RoomID) error {
	switch room := c.roster.Rooms[id]; {
	case room == nil:
		return fmt.Errorf("the team has no room %s", id)
	case !c.inRoom(id):
		return fmt.Errorf("you are not in the room %s any more: %w", c.roster.roomName(id), errNotInRoom)
	}
	return nil
}

var errNotInRoom = errors.New("nothing is written there")
