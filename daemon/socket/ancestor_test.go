package socket

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestAncestors(t *testing.T) {
	if os.Getenv("KNOOT_TEST_ANCESTORS") != "" {
		fmt.Println("ancestors", Ancestors())
		return
	}
	if _, ok := parentOf(os.Getpid()); !ok {
		t.Skip("this system does not tell")
	}
	cmd := exec.Command("sh", "-c", `"$0" -test.run '^TestAncestors$' -test.v; :`, os.Args[0]) // the shell stays in between
	cmd.Env = append(os.Environ(), "KNOOT_TEST_ANCESTORS=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(out), "ancestors ")
	line, _, _ = strings.Cut(line, "\n")
	got := strings.Fields(strings.Trim(line, "[]"))
	want := []string{fmt.Sprint(cmd.Process.Pid), fmt.Sprint(os.Getpid())}
	if len(got) < 2 || !slices.Equal(got[:2], want) {
		t.Errorf("%v does not begin with %v", got, want)
	}
}
