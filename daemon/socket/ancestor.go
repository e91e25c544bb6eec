package socket

import "os"

// maxAncestors bounds how far up processes are followed.
const maxAncestors = 32

// Ancestors are the processes above this one, nearest first, without the first process of the system. A process that ends
// meanwhile ends the list.
func Ancestors() []int {
	var list []int
	for pid := os.Getppid(); pid > 1 && len(list) < maxAncestors; {
		list = append(list, pid)
		parent, ok := parentOf(pid)
		if !ok {
			break
		}
		pid = parent
	}
	return list
}
