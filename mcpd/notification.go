package mcpd

import (
	"cmp"

	"github.com/gen2brain/beeep"

	"knoot.dev/knoot/daemon"
)

// maxNotice bounds what a notification says, in bytes.
const maxNotice = 200

// desktopNotify shows a notification on the person's desktop, if there is one.
func desktopNotify(title, text string) error {
	return beeep.Notify(title, text, "")
}

// waits tells the person that an agent waits for them, with what it asks, where that is known. mu is held.
func (s *Server) waits(a *agent, asks string) {
	title, text := a.Name+" waits for you", cmp.Or(daemon.Clean(asks, maxNotice), a.Folder)
	go func() { // a desktop may take its time, or never answer
		if err := s.notify(title, text); err != nil {
			s.host.Log().Debug("the desktop shows no notification", "error", err)
		}
	}()
}
