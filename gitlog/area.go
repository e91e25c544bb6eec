package gitlog

import "strings"

// RoomOf returns the room that a canonical path belongs to: that of the area with the longest prefix of it, else general. The
// root ("") is general's, unless an area has it. A–Z are folded. Areas whose prefix could not be read count for nothing, so
// whoever seals must have read the names.
func (r *Roster) RoomOf(path string) RoomID {
	room, length := r.General, -1
	path = FoldPath(path)
	for _, a := range r.Areas {
		if !a.read {
			continue
		}
		prefix := FoldPath(a.Prefix)
		if len(prefix) > length && (prefix == "" || path == prefix || strings.HasPrefix(path, prefix+"/")) {
			room, length = a.Room, len(prefix)
		}
	}
	return room
}
