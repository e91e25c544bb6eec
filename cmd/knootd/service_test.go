package main

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

func TestSystemdServiceQuotes(t *testing.T) {
	unit := systemdService(`/opt/my $tools/50%/kno"otd`, `/home/a b\c`)
	for _, want := range []string{
		`ExecStart="/opt/my $$tools/50%%/kno\"otd" daemon`,
		`Environment="KNOOT_HOME=/home/a b\\c"`,
	} {
		if !strings.Contains(unit, want+"\n") {
			t.Errorf("the unit lacks %s:\n%s", want, unit)
		}
	}
	if strings.Contains(systemdService("/bin/knootd", ""), "Environment") {
		t.Error("the unit sets KNOOT_HOME where it is not set")
	}
}

func TestLaunchdAgentIsXML(t *testing.T) {
	d := xml.NewDecoder(strings.NewReader(launchdAgent(`/opt/<&>/knootd`, `/home/"a"`)))
	var texts []string
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok {
			texts = append(texts, string(text))
		}
	}
	all := strings.Join(texts, "|")
	for _, want := range []string{"|/opt/<&>/knootd|", `|/home/"a"|`} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is not in %s", want, all)
		}
	}
}
