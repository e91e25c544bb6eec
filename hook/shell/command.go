package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// call is a simple command, expanded.
type call struct {
	r    *reading
	sc   *scope
	name string
	args []word // without the name
	in   input
	// sets are the variables that are assigned for this command only.
	sets []string
}

// call interprets a simple command and its redirections.
func (r *reading) call(cmd *syntax.CallExpr, sc *scope, redirections []*syntax.Redirect) (sure bool) {
	words, ok := r.fields(cmd.Args, sc, maxWords+1) // one of them is the command's name
	if len(cmd.Args) == 0 {
		for _, a := range cmd.Assigns {
			r.assign(a, sc)
		}
		r.redirects(redirections, sc)
		return true
	}
	var sets []string
	var was map[string]value
	for _, a := range cmd.Assigns {
		if was == nil {
			was = map[string]value{}
		}
		if a.Name != nil {
			if _, again := was[a.Name.Value]; !again {
				was[a.Name.Value] = sc.vars[a.Name.Value]
			}
			sets = append(sets, a.Name.Value)
		}
		r.assign(a, sc)
	}
	in := r.redirects(redirections, sc)
	defer func() {
		for name, v := range was {
			if name == "IFS" && len(words) > 0 && words[0].text == "read" {
				sc.odd = false
			}
			sc.setVar(name, v)
		}
	}()
	if !ok {
		r.opaque = true
		return false
	}
	if len(words) == 0 {
		return false
	}
	c := &call{r: r, sc: sc, in: in, sets: sets}
	return c.run(words)
}

// run interprets words as a command and its arguments.
func (c *call) run(words []word) (sure bool) {
	if len(words) == 0 {
		return false
	}
	if !words[0].known || words[0].many {
		c.r.opaque = true
		return false
	}
	c.name, c.args = words[0].text, words[1:]
	if body, ok := c.sc.funcs[c.name]; ok {
		c.function(body)
		return false
	}
	return c.command()
}

// command interprets a command that is no function.
func (c *call) command() (sure bool) {
	if dir, base := path.Split(c.name); dir != "" {
		switch dir {
		case "/bin/", "/usr/bin/", "/usr/local/bin/", "/opt/homebrew/bin/", "/sbin/", "/usr/sbin/":
			c.name = base
		default:
			c.r.opaque = true // a program of the repository, or of somebody
			return false
		}
	} else if sure, ok := c.builtin(); ok {
		return sure
	}
	if c.wrapper() || c.reader() || c.writer() || c.formatter() {
		return false
	}
	switch c.name {
	case "git":
		c.git()
	case "curl":
		c.curl()
	case "wget":
		c.wget()
	case "find":
		c.find()
	case "xargs":
		c.xargs()
	case "bash", "sh", "dash", "zsh", "ksh":
		c.shell()
	case "perl", "ruby":
		c.script()
	case "apply_patch", "applypatch":
		c.applyPatch()
	case "knoot":
		c.knoot()
	default:
		if !c.harmless() {
			c.r.opaque = true
		}
	}
	return false
}

// harmless reports whether a command changes no file, whatever its options, and reads none whose bytes it would tell.
func (c *call) harmless() bool {
	switch c.name {
	case "ls", "stat", "du", "df", "pwd", "sleep", "basename", "dirname", "realpath", "readlink", "which", "whereis", "id", "whoami",
		"groups", "uname", "hostname", "nproc", "seq", "yes", "printenv", "tty", "ps", "pgrep", "pidof", "pkill", "pstree", "kill", "tr", "expr",
		"clear", "getconf", "locale", "lscpu", "lsblk", "free", "uptime", "w", "who", "last", "lsof", "netstat", "ss", "ping", "host", "dig",
		"nslookup", "cal", "factor", "arch", "getent", "mkdir", "rmdir", "echo", "printf", "test", "[", "true", "false":
		return true
	case "date":
		return true
	case "tree":
		return !slices.ContainsFunc(c.args, func(w word) bool { return !w.known || strings.HasPrefix(w.text, "-") && strings.Contains(w.text, "o") })
	case "file":
		return !slices.ContainsFunc(c.args, func(w word) bool { return w.text == "-C" || w.text == "--compile" })
	case "mktemp":
		return !slices.ContainsFunc(c.args, func(w word) bool { return w.text != "-d" && w.text != "-q" && w.text != "-u" })
	}
	return false
}

// parse takes the arguments apart; an option that is not known makes the line opaque.
func (c *call) parse(spec options) parsed {
	p := spec.parse(c.args)
	if p.strange {
		c.r.opaque = true
	}
	return p
}

// knoot's own commands change no file of a worktree, but for those that set it up.
func (c *call) knoot() {
	if len(c.args) > 0 && c.args[0].known {
		switch c.args[0].text {
		case "remember", "recall", "why", "who", "plan", "cache", "confirm", "forget", "wait", "msg", "inbox", "status", "stats", "shown",
			"present", "take", "release", "watch", "sync", "verify", "version", "help", "-h", "--help":
			return
		}
	}
	c.r.opaque = true
}

// script is an interpreter that may edit files in place: they are named, beside what its code may do.
func (c *call) script() {
	c.r.opaque = true
	spec := options{short: "acCd::D:e:E:F:hi::I:lm:M:npsStTuUvVwWx::X"}
	if c.name == "ruby" {
		spec = options{short: "aC:cdE:e:F:i::I:lnpr:sSUvw::W::x::h"}
	}
	spec.short += "01234567" // -0777 and -l012 have no argument
	p := c.parse(spec)
	edit, ok := p.get("i")
	if !ok || p.strange {
		return
	}
	files := p.operands
	if !p.is("e", "E") && len(files) > 0 {
		files = files[1:]
	}
	for _, f := range files {
		c.r.write(c.sc, f, Write{Entry: true})
		c.backup(f, edit)
	}
}

// backup names the copy that an in-place option with a suffix leaves.
func (c *call) backup(file word, edit option) {
	suffix := edit.value
	if !edit.has {
		return
	}
	if !file.known || !suffix.known {
		c.r.opaque = true
		return
	}
	dir, base := path.Split(file.text)
	name := base + suffix.text
	if strings.Contains(suffix.text, "*") {
		name = strings.ReplaceAll(suffix.text, "*", base)
	}
	if !strings.Contains(name, "/") {
		name = dir + name
	}
	c.r.write(c.sc, literal(name), Write{Entry: true})
}
