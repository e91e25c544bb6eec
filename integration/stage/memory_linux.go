package stage

import (
	"fmt"
	"os"
	"strings"
)

// Memory is all that is in a process's memory and can be read, part by part.
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
		if !strings.HasPrefix(allowed, "r") || strings.Contains(line, "[vvar") {
			continue
		}
		part := make([]byte, to-from)
		size, err := mem.ReadAt(part, int64(from))
		if err != nil && size == 0 {
			continue // it is gone by now
		}
		each(part[:size])
	}
	return nil
}
