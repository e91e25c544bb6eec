package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// refused are packages that every command would pay for at its start, most of them without having any use for them.
var refused = map[string]string{
	"github.com/zricethezav/gitleaks/v8/config": "its rules are data of this program: see gitlog.credentialRule",
	"github.com/zricethezav/gitleaks/v8/detect": "it brings archives, templates and terminals along",
	"github.com/spf13/viper":                    "what is configured here is TOML",
	"github.com/go-git/go-git/v5":               "it brings ssh and http along; its storage alone reads objects",
}

func TestLinksNothingHeavy(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := strings.Fields(string(out))
	for path, why := range refused {
		if slices.Contains(linked, path) {
			t.Errorf("knootd links %s: %s", path, why)
		}
	}
}
