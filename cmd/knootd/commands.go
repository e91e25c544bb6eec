package main

import (
	"fmt"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"
)

// commands is the tree, in the order in which help lists it.
func (c *console) commands() *ffcli.Command {
	groups := []struct {
		title    string
		commands []*ffcli.Command
	}{
		{"Set up and look", []*ffcli.Command{c.initCommand(), c.statusCommand(), c.offCommand(), c.onCommand(), c.demoCommand(), c.versionCommand()}},
		{"Say something", []*ffcli.Command{c.rememberCommand(), c.cacheCommand(), c.planCommand(), c.confirmCommand(), c.forgetCommand()}},
		{"Look something up", []*ffcli.Command{c.recallCommand(), c.whyCommand(), c.exportCommand(), c.shownCommand(), c.statsCommand()}},
		{"The team", []*ffcli.Command{c.joinCommand(), c.memberCommand(), c.roomCommand(), c.areasCommand()}},
		{"Who else is here", []*ffcli.Command{c.whoCommand(), c.watchCommand(), c.waitCommand(), c.releaseCommand(), c.takeCommand(), c.presentCommand(), c.hubsCommand(), c.msgCommand(), c.inboxCommand()}},
		{"Behind it", []*ffcli.Command{c.daemonCommand(), c.agentCommand(), c.mcpCommand(), c.relayCommand(), c.loginCommand(), c.syncCommand(), c.verifyCommand(), c.trustCommand()}},
	}
	root := &ffcli.Command{Name: "knoot"}
	var b strings.Builder
	b.WriteString("Usage: knoot COMMAND [FLAGS] [ARGUMENTS]\n\nWhat one coding agent learned reaches the next one, through your own git.\n")
	for _, group := range groups {
		fmt.Fprintf(&b, "\n%s:\n", group.title)
		for _, command := range group.commands {
			fmt.Fprintf(&b, "  %-9s %s\n", command.Name, command.ShortHelp)
			root.Subcommands = append(root.Subcommands, command)
		}
	}
	b.WriteString("\n`knoot COMMAND -h` says more and gives an example. Agents run `knoot hook`.\n")
	help := b.String()
	root.UsageFunc = func(*ffcli.Command) string { return help }
	return root
}
