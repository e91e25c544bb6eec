package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"knoot.dev/knoot/gitlog"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/peterbourgon/ff/v3/ffcli"
)

// console is what a command has to do with: streams, environment, working directory and clock.
type console struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	dir            string // the working directory; "" when it is gone
	now            func() time.Time

	repo *gitlog.Repository // of dir, once it was asked for
}

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitMisuse = 2
)

// misuse is an error of whoever typed the command.
type misuse struct{ sentence string }

func (m misuse) Error() string { return m.sentence }

func misusef(format string, args ...any) error { return misuse{fmt.Sprintf(format, args...)} }

var (
	// errSaid ends a command that has printed what is wrong itself.
	errSaid = errors.New("said already")
	// errNoCommand ends knoot without arguments, which has printed the list of commands.
	errNoCommand = errors.New("no command")
)

// run does what the arguments say and returns the exit code.
func (c *console) run(ctx context.Context, args []string) int {
	root := c.commands()
	err := c.dispatch(ctx, root, args)
	var m misuse
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errSaid):
		return exitFailed
	case errors.Is(err, errNoCommand):
		return exitMisuse
	case errors.As(err, &m):
		fmt.Fprintln(c.stderr, "knoot: "+plain(oneLine(m.sentence)))
		return exitMisuse
	}
	fmt.Fprintln(c.stderr, "knoot: "+plain(oneLine(err.Error())))
	return exitFailed
}

func (c *console) dispatch(ctx context.Context, root *ffcli.Command, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(c.stderr, root.UsageFunc(root))
		return errNoCommand
	}
	switch args[0] {
	case "-h", "-help", "--help", "help":
		about := root
		for _, name := range args[1:] {
			below := find(about, name)
			if below == nil {
				return unknown(about, name)
			}
			about = below
		}
		fmt.Fprint(c.stdout, about.UsageFunc(about))
		return nil
	case "-version", "--version":
		args = []string{"version"}
	}
	command := find(root, args[0])
	if command == nil {
		if strings.HasPrefix(args[0], "-") {
			return misusef("%s: a command comes first; `knoot -h` lists them", args[0])
		}
		return unknown(root, args[0])
	}
	for args = args[1:]; len(command.Subcommands) > 0; args = args[1:] {
		if len(args) == 0 {
			return misusef("`knoot %s` is followed by %s; `knoot %[1]s -h` says more", command.Name, orList(lastWords(command.Subcommands)))
		}
		switch args[0] {
		case "-h", "-help", "--help":
			fmt.Fprint(c.stdout, command.UsageFunc(command))
			return nil
		}
		below := find(command, args[0])
		if below == nil {
			return unknown(command, args[0])
		}
		command = below
	}
	err := command.Parse(flagsFirst(command.FlagSet, args))
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(c.stdout, command.UsageFunc(command))
		return nil
	case err != nil:
		what := strings.TrimPrefix(err.Error(), "error parsing commandline args: ")
		return misusef("%s; `knoot %s -h` shows how it is typed", strings.Replace(what, "flag provided but not defined:", "there is no flag", 1), command.Name)
	}
	return command.Run(ctx)
}

// find returns the command below another whose name ends in that word: "add" below "member" is "member add".
func find(above *ffcli.Command, word string) *ffcli.Command {
	for _, command := range above.Subcommands {
		if lastWord(command) == word {
			return command
		}
	}
	return nil
}

func lastWord(command *ffcli.Command) string {
	return command.Name[strings.LastIndexByte(command.Name, ' ')+1:]
}

func lastWords(commands []*ffcli.Command) []string {
	var words []string
	for _, command := range commands {
		words = append(words, lastWord(command))
	}
	return words
}

func unknown(above *ffcli.Command, word string) error {
	best, distance := "", len(word)/2+1
	for _, command := range above.Subcommands {
		if d := editDistance(word, lastWord(command)); d < distance {
			best, distance = command.Name, d
		}
	}
	group := "knoot "
	if above.Name != "knoot" {
		group += above.Name + " "
	}
	if best != "" {
		return misusef("there is no command %q; did you mean `knoot %s`?", strings.TrimPrefix(group, "knoot ")+word, best)
	}
	return misusef("there is no command %q; `%s-h` lists them", strings.TrimPrefix(group, "knoot ")+word, group)
}

// editDistance counts the letters to change, add, drop or swap with a neighbour to get from a to b.
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// flagsFirst moves flags before the other arguments, since people put them anywhere; the flag package stops at the
// first argument that is none. After "--" nothing is a flag.
func flagsFirst(flags *flag.FlagSet, args []string) []string {
	var first, rest []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			rest = append(rest, args[i+1:]...)
			break
		}
		if len(arg) < 2 || arg[0] != '-' {
			rest = append(rest, arg)
			continue
		}
		first = append(first, arg)
		name := strings.TrimLeft(arg, "-")
		if f := flags.Lookup(name); f != nil && !isSwitch(f) {
			if i++; i == len(args) {
				return first // its value is missing, which the flag package says
			}
			first = append(first, args[i])
		}
	}
	return append(append(first, "--"), rest...)
}

func isSwitch(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string         { return strings.Join(*l, ", ") }
func (l *list) Set(value string) error { *l = append(*l, value); return nil }

// oneLine joins the lines of a message that git or the system wrote.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// onTerminal reports whether a stream is a terminal.
func onTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// text returns the arguments as one text, or standard input where the only one is "-".
func (c *console) text(args []string) (string, error) {
	if len(args) != 1 || args[0] != "-" {
		return strings.Join(args, " "), nil
	}
	const most = 1 << 20 // far more than an entry may hold; the log says how much that is
	text, err := io.ReadAll(io.LimitReader(c.stdin, most))
	if err != nil {
		return "", fmt.Errorf("standard input: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

// noArguments refuses arguments where a command takes none.
func noArguments(name string, args []string) error {
	if len(args) > 0 {
		return misusef("`knoot %s` takes no argument, and got %q; `knoot %s -h` shows how it is typed", name, args[0], name)
	}
	return nil
}
