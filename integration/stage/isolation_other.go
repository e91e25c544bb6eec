//go:build !linux

package stage

import "errors"

// Isolated says why programs of others are not run here.
func Isolated(func() int) error {
	return errors.New("network namespaces exist on Linux only")
}
