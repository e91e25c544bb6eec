package shell

import (
	"slices"
	"strings"
)

// formatter interprets a command that edits the files it is given, if an option says so; false: it is none.
func (c *call) formatter() bool {
	var spec options
	var edits func(p *parsed) bool
	files := func(operands []word) []word { return operands }
	has := func(names ...string) func(*parsed) bool { return func(p *parsed) bool { return p.is(names...) } }
	not := func(names ...string) func(*parsed) bool { return func(p *parsed) bool { return !p.is(names...) } }
	sub := func(names ...string) func([]word) []word {
		return func(operands []word) []word {
			if len(operands) > 0 && operands[0].known && slices.Contains(names, operands[0].text) {
				return operands[1:]
			}
			c.r.opaque = true
			return nil
		}
	}
	switch c.name {
	case "gofmt", "gofumpt", "goimports":
		spec = options{short: "delswvmr:", long: "extra lang= modpath= local= cpuprofile= format-only srcdir="}
		edits = has("w")
	case "shfmt":
		spec = options{short: "dlwsmi:p", long: "list write simplify minify diff indent= posix language-dialect= ln= binary-next-line case-indent space-redirects keep-padding func-next-line"}
		edits = has("w", "write")
	case "clang-format":
		spec = options{short: "in", long: "style= fallback-style= assume-filename= verbose Werror sort-includes dry-run lines= offset= length="}
		edits = has("i")
	case "prettier":
		spec = options{short: "wclu", long: "write check list-different ignore-unknown config= no-config parser= tab-width= print-width= single-quote no-semi use-tabs " +
			"trailing-comma= ignore-path= log-level= loglevel= prose-wrap= end-of-line= no-editorconfig no-error-on-unmatched-pattern arrow-parens= quote-props="}
		edits = has("w", "write")
	case "black":
		spec = options{short: "l:t:CSqv", long: "line-length= target-version= check diff quiet verbose skip-string-normalization fast safe preview config= pyi"}
		edits = not("check", "diff")
	case "isort":
		spec = options{short: "cdl:m:qvw:", long: "check check-only diff profile= line-length= quiet verbose stdout force-sort-within-sections"}
		edits = not("c", "d", "check", "check-only", "diff", "stdout")
	case "autopep8":
		spec = options{short: "iavdj:", long: "in-place aggressive max-line-length= select= ignore= diff verbose"}
		edits = has("i", "in-place")
	case "yapf":
		spec = options{short: "ipdvm", long: "in-place diff style= parallel verbose no-local-style"}
		edits = has("i", "in-place")
	case "stylua":
		spec = options{short: "cvf:", long: "check verbose config-path= column-width= indent-type= indent-width= quote-style="}
		edits = not("c", "check")
	case "buf":
		spec = options{short: "wd", long: "write diff exit-code config="}
		edits, files = has("w", "write"), sub("format")
	case "terraform", "tofu":
		spec = options{}
		edits, files = func(*parsed) bool { return true }, sub("fmt")
	case "dart":
		spec = options{short: "l:o:", long: "line-length= output= set-exit-if-changed"}
		edits, files = func(p *parsed) bool { o, ok := p.get("o", "output"); return !ok || o.value.text == "write" }, sub("format")
	case "ruff":
		spec = options{short: "qn", long: "fix unsafe-fixes check diff select= ignore= line-length= config= quiet no-cache target-version= isolated"}
		edits = func(p *parsed) bool {
			format := len(p.operands) > 0 && p.operands[0].text == "format"
			if !p.is("no-cache", "n") {
				c.r.opaque = true // its cache is in the worktree
			}
			return !p.is("diff") && (format && !p.is("check") || p.is("fix"))
		}
		files = sub("format", "check")
	case "rustfmt":
		// It formats the modules of the files too.
		spec = options{short: "lqv", long: "check edition= config= config-path= emit= quiet verbose"}
		edits = func(p *parsed) bool {
			c.r.opaque = c.r.opaque || !p.is("check", "emit")
			return !p.is("check", "emit")
		}
	case "eslint":
		spec = options{short: "c:", long: "fix quiet ext= config= no-eslintrc max-warnings= format= rule= ignore-pattern= no-ignore no-error-on-unmatched-pattern"}
		edits = has("fix")
		c.r.opaque = true // its configuration is a program
	case "stylelint":
		spec = options{short: "c:", long: "fix quiet config= max-warnings= allow-empty-input"}
		edits = has("fix")
		c.r.opaque = true
	default:
		return false
	}
	p := c.parseSingleDash(spec)
	operands := files(p.operands)
	if !edits(&p) {
		return true
	}
	if len(operands) == 0 && (c.name == "terraform" || c.name == "tofu" || c.name == "buf") {
		c.r.opaque = true // the directory
	}
	for _, w := range operands {
		at, ok := c.r.path(c.sc, w.text)
		switch {
		case w.known && w.text == "-":
		case !w.known || !ok || c.r.isDir(at) || strings.HasSuffix(w.text, "/") || strings.ContainsAny(w.text, "*?[{!"):
			c.r.opaque = true // all files in it, as the formatter chooses them
		default:
			c.r.write(c.sc, w, Write{})
		}
	}
	return true
}
