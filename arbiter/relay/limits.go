package relay

import (
	"flag"
	"fmt"
	"time"
)

// Limits bound what one device, and all of them, can make the relay keep and do. Each is a flag of `knoot relay`, and
// going over one is answered with a fault.
type Limits struct {
	Streams      int           // requests of one device at once
	Rate         int           // requests of one device a second, sustained
	Burst        int           // requests of one device that may come at once
	Claims       int           // live claims of one device in one repository
	ClaimBytes   int           // paths times details of one claim, in bytes
	StateBytes   int64         // of what goes on in one repository, in bytes
	Opened       int           // repositories that one connection has open
	PerDevice    int           // connections of one device; the oldest is closed for a new one
	Connections  int           // connections in all
	Handshakes   int           // connections in all that have not said hello
	Teams        int           // rosters that are kept
	Repositories int           // in all
	RosterRate   int           // roster entries of one device that are checked a second
	RosterBurst  int           // roster entries of one device that are checked at once
	Tail         time.Duration // how long events are kept for whoever comes back
	LogBytes     int64         // of the log's files; older ones go earlier than Tail says
	LogFile      int64         // of one of the log's files, at least
	Slow         time.Duration // how long one message may take to be read
}

// Flags adds a flag for each limit, with the value that it has now.
func (l *Limits) Flags(flags *flag.FlagSet) {
	flags.IntVar(&l.Streams, "max-requests", l.Streams, "requests of one device `at once`")
	flags.IntVar(&l.Rate, "max-rate", l.Rate, "requests of one device `a second`, sustained")
	flags.IntVar(&l.Burst, "max-burst", l.Burst, "requests of one device in one `burst`")
	flags.IntVar(&l.Claims, "max-claims", l.Claims, "live `claims` of one device in one repository")
	flags.IntVar(&l.ClaimBytes, "max-claim-bytes", l.ClaimBytes, "`bytes` of one claim: paths times what is sealed for each")
	flags.Int64Var(&l.StateBytes, "max-state-bytes", l.StateBytes, "`bytes` of what goes on in one repository: over it no more is taken until some of it is over")
	flags.IntVar(&l.Opened, "max-open", l.Opened, "`repositories` that one connection has open")
	flags.IntVar(&l.PerDevice, "max-device-connections", l.PerDevice, "`connections` of one device; a new one ends the oldest")
	flags.IntVar(&l.Connections, "max-connections", l.Connections, "`connections` in all")
	flags.IntVar(&l.Handshakes, "max-handshakes", l.Handshakes, "`connections` that have not said who they are")
	flags.IntVar(&l.Teams, "max-teams", l.Teams, "`teams` whose rosters are kept")
	flags.IntVar(&l.Repositories, "max-repositories", l.Repositories, "`repositories` in all")
	flags.IntVar(&l.RosterRate, "max-roster-rate", l.RosterRate, "roster entries of one device that are checked `a second`")
	flags.IntVar(&l.RosterBurst, "max-roster-burst", l.RosterBurst, "roster entries of one device in one `burst`")
	flags.DurationVar(&l.Tail, "keep", l.Tail, "how `long` events are kept for machines that come back")
	flags.Int64Var(&l.LogBytes, "max-log-bytes", l.LogBytes, "`bytes` of the log, on the disk and in memory; over it the oldest go before --keep")
	flags.Int64Var(&l.LogFile, "log-file-bytes", l.LogFile, "`bytes` after which the log begins another file")
	flags.DurationVar(&l.Slow, "max-slow", l.Slow, "how `long` a machine may take to read a message")
}

// check says which limit makes no sense.
func (l *Limits) check() error {
	for name, n := range map[string]int64{
		"max-requests": int64(l.Streams), "max-rate": int64(l.Rate), "max-burst": int64(l.Burst), "max-claims": int64(l.Claims),
		"max-claim-bytes": int64(l.ClaimBytes), "max-open": int64(l.Opened), "max-device-connections": int64(l.PerDevice),
		"max-connections": int64(l.Connections), "max-handshakes": int64(l.Handshakes), "max-teams": int64(l.Teams),
		"max-repositories": int64(l.Repositories), "max-roster-rate": int64(l.RosterRate), "max-roster-burst": int64(l.RosterBurst),
		"max-state-bytes": l.StateBytes, "keep": int64(l.Tail), "max-log-bytes": l.LogBytes, "log-file-bytes": l.LogFile, "max-slow": int64(l.Slow),
	} {
		if n < 1 {
			return fmt.Errorf("--%s has to be above 0", name)
		}
	}
	return nil
}

// DefaultLimits are those that hold unless flags say otherwise.
func DefaultLimits() Limits {
	return Limits{
		Streams: 64, Rate: 200, Burst: 1_000, Claims: 10_000, ClaimBytes: 256 << 10, StateBytes: 64 << 20, Opened: 256, PerDevice: 8,
		Connections: 8_192, Handshakes: 512, Teams: 1_000, Repositories: 10_000, RosterRate: 16, RosterBurst: 2_000,
		Tail: 24 * time.Hour, LogBytes: 256 << 20, LogFile: 8 << 20, Slow: 10 * time.Second,
	}
}
