package gitlog

// LastSeen returns, by device, the time of the newest entry that is held of it. Devices that never wrote are not in it.
func (c *Clone) LastSeen() map[DeviceID]Millis {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[DeviceID]Millis{}
	for _, s := range c.entries {
		seen[s.Author] = max(seen[s.Author], s.Time)
	}
	return seen
}
