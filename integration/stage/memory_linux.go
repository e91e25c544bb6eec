package stage

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// Memory is all that is in a process's memory and can be read, part by part, without pages of zeros and without what is mapped from
// files and cannot be written.
func Memory(process int, each func(part []byte)) error {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", process))
	if err != nil {
		return err
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", process))
	if err != nil {
		return err
	}
	defer mem.Close()
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		var allowed string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &allowed); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		fields := strings.Fields(line)
		file := len(fields) > 5 && strings.HasPrefix(fields[5], "/")
		if !strings.HasPrefix(allowed, "r") || file && !strings.HasPrefix(allowed, "rw") || strings.Contains(line, "[vvar") {
			continue
		}
		part := make([]byte, to-from)
		size, err := mem.ReadAt(part, int64(from))
		if err != nil && size == 0 {
			continue // it is gone by now
		}
		for part = part[:size]; len(part) > 0; {
			const page = 4096
			full := 0
			for full < len(part) && !bytes.Equal(part[full:min(full+page, len(part))], zeros[:min(page, len(part)-full)]) {
				full += page
			}
			if full > 0 {
				each(part[:min(full, len(part))])
			}
			part = part[min(full+page, len(part)):]
		}
	}
	return nil
}

var zeros [4096]byte
