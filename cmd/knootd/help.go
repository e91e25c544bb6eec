package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"
)

// manual is what a command says about itself.
type manual struct {
	name    string
	usage   string // what follows "knoot name"
	short   string // one line without a full stop, for the list of commands
	long    string // paragraphs
	example string // lines as typed, comments with #
}

// command makes a command of its manual, its flags and what it does.
func command(m manual, flags *flag.FlagSet, exec func(ctx context.Context, args []string) error) *ffcli.Command {
	flags.SetOutput(io.Discard) // run prints errors and help itself
	usage := strings.TrimSpace("knoot " + m.name + " " + m.usage)
	return &ffcli.Command{
		Name: m.name, ShortUsage: usage, ShortHelp: m.short, FlagSet: flags, Exec: exec,
		UsageFunc: func(*ffcli.Command) string {
			var b strings.Builder
			fmt.Fprintf(&b, "%s\n\n%s.\n", strings.Join(wrap("Usage: "+usage, helpWidth-4), "\n    "), m.short)
			if m.long != "" {
				for _, paragraph := range strings.Split(m.long, "\n\n") {
					fmt.Fprintf(&b, "\n%s\n", strings.Join(wrap(paragraph, helpWidth), "\n"))
				}
			}
			b.WriteString(flagHelp(flags))
			fmt.Fprintf(&b, "\nExample:\n%s\n", indent(strings.TrimSpace(m.example), "  "))
			return b.String()
		},
	}
}

// group makes a command that is nothing but those below it.
func group(m manual, commands ...*ffcli.Command) *ffcli.Command {
	return &ffcli.Command{
		Name: m.name, ShortUsage: "knoot " + m.name + " COMMAND", ShortHelp: m.short, FlagSet: newFlags(m.name), Subcommands: commands,
		UsageFunc: func(*ffcli.Command) string {
			var b strings.Builder
			fmt.Fprintf(&b, "Usage: knoot %s COMMAND [FLAGS] [ARGUMENTS]\n\n%s.\n", m.name, m.short)
			if m.long != "" {
				fmt.Fprintf(&b, "\n%s\n", strings.Join(wrap(m.long, helpWidth), "\n"))
			}
			b.WriteByte('\n')
			width := 0
			for _, command := range commands {
				width = max(width, len(command.Name))
			}
			for _, command := range commands {
				lines := wrap(command.ShortHelp, helpWidth-width-3)
				fmt.Fprintf(&b, "  %-*s %s\n", width, command.Name, strings.Join(lines, "\n"+strings.Repeat(" ", width+3)))
			}
			fmt.Fprintf(&b, "\nExample:\n%s\n", indent(strings.TrimSpace(m.example), "  "))
			return b.String()
		},
	}
}

func newFlags(name string) *flag.FlagSet { return flag.NewFlagSet(name, flag.ContinueOnError) }

func flagHelp(flags *flag.FlagSet) string {
	var names, texts []string
	width := 0
	flags.VisitAll(func(f *flag.Flag) {
		value, text := flag.UnquoteUsage(f)
		name := "--" + f.Name
		if !isSwitch(f) {
			name += " " + value
		}
		names, texts, width = append(names, name), append(texts, text), max(width, len(name))
	})
	if len(names) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nFlags:\n")
	for i, name := range names {
		lines := wrap(texts[i], helpWidth-width-4)
		fmt.Fprintf(&b, "  %-*s  %s\n", width, name, strings.Join(lines, "\n"+strings.Repeat(" ", width+4)))
	}
	return b.String()
}

// helpWidth is what fits in the narrowest terminal that people use.
const helpWidth = 80

// wrap breaks a text into lines of at most width characters, words kept whole.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(text, "\n", "\n"+by)
}
