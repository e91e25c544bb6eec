package shell

import (
	"slices"
	"strings"
)

// readerOptions are those of commands that read the files in their operands and do nothing else.
func readerOptions(name string) (options, bool) {
	switch name {
	case "cat":
		return options{short: "AbeElnstTuv", long: "show-all number-nonblank show-ends number squeeze-blank show-tabs show-nonprinting help version"}, true
	case "tac":
		return options{short: "brs:", long: "before regex separator="}, true
	case "nl":
		return options{short: "b:d:f:h:i:l:n:ps:v:w:", long: "body-numbering= section-delimiter= footer-numbering= header-numbering= line-increment= " +
			"join-blank-lines= number-format= no-renumber number-separator= starting-line-number= number-width="}, true
	case "head":
		return options{short: "c:n:qvz", long: "bytes= lines= quiet silent verbose zero-terminated", digits: true}, true
	case "tail":
		return options{short: "c:fFn:qrs:vz", long: "bytes= follow? lines= max-unchanged-stats= pid= quiet silent retry sleep-interval= verbose zero-terminated", digits: true}, true
	case "less":
		return options{short: "aAb:BcCdeEfFgGiIj:JKLmMnNp:P:qQrRsSt:T:uUVwWx:Xy:z:~#:", long: "quit-if-one-screen RAW-CONTROL-CHARS raw-control-chars " +
			"chop-long-lines no-init LINE-NUMBERS line-numbers ignore-case IGNORE-CASE quit-at-eof QUIT-AT-EOF pattern= tabs= mouse squeeze-blank-lines", digits: true}, true
	case "more":
		return options{short: "dfcelnpsu:", long: "silent logical no-pause print-over clean-print squeeze plain lines=", digits: true}, true
	case "wc":
		return options{short: "clmLw", long: "bytes chars lines max-line-length words total= files0-from="}, true
	case "cut":
		return options{short: "b:c:d:f:nsz", long: "bytes= characters= complement delimiter= fields= only-delimited output-delimiter= zero-terminated"}, true
	case "paste":
		return options{short: "d:sz", long: "delimiters= serial zero-terminated"}, true
	case "join":
		return options{short: "a:e:ij:o:t:v:1:2:z", long: "ignore-case check-order nocheck-order header zero-terminated"}, true
	case "comm":
		return options{short: "123z", long: "check-order nocheck-order output-delimiter= total zero-terminated"}, true
	case "diff":
		return options{short: "qscC:uU:enyW:pF:tTlrNx:X:S:iEZbwBI:aDdHh0123456789L:P", long: "normal brief report-identical-files context? unified? ed rcs side-by-side " +
			"width= left-column suppress-common-lines show-c-function show-function-line= label= expand-tabs initial-tab tabsize= suppress-blank-empty " +
			"paginate recursive no-dereference new-file unidirectional-new-file ignore-file-name-case no-ignore-file-name-case exclude= exclude-from= " +
			"starting-file= from-file= to-file= ignore-case ignore-tab-expansion ignore-trailing-space ignore-space-change ignore-all-space " +
			"ignore-blank-lines ignore-matching-lines= text strip-trailing-cr ifdef= line-format= minimal horizon-lines= speed-large-files color? palette="}, true
	case "cmp":
		return options{short: "bi:ln:s", long: "print-bytes ignore-initial= verbose bytes= quiet silent"}, true
	case "fold":
		return options{short: "bcsw:", long: "bytes characters spaces width=", digits: true}, true
	case "fmt":
		return options{short: "cp:stuw:g:", long: "crown-margin prefix= split-only tagged-paragraph uniform-spacing width= goal=", digits: true}, true
	case "od":
		return options{short: "A:aBbcDdeFfHhIij:LlN:OoS:st:vw::Xx", long: "address-radix= skip-bytes= read-bytes= endian= strings? format= output-duplicates width? traditional"}, true
	case "hexdump", "hd":
		return options{short: "bcCde:f:n:os:vxX", long: "canonical one-byte-octal one-byte-char two-bytes-decimal two-bytes-octal two-bytes-hex color? format= " +
			"format-file= length= skip= no-squeezing"}, true
	case "strings":
		return options{short: "adfhn:ot:e:T:s:wU:", long: "all data print-file-name bytes= radix= encoding= target= output-separator= include-all-whitespace unicode=", digits: true}, true
	case "md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum":
		return options{short: "bctwzl:", long: "binary check tag text zero ignore-missing quiet status strict warn length="}, true
	case "shasum":
		return options{short: "a:bctUw0sq", long: "algorithm= binary check text UNIVERSAL warn status quiet ignore-missing strict tag"}, true
	case "cksum":
		return options{short: "a:ctwzl:", long: "algorithm= base64 check length= raw tag untagged text binary zero ignore-missing quiet status strict warn debug"}, true
	case "md5":
		return options{short: "pqrtxs:"}, true
	case "bat", "batcat":
		return options{short: "Ab:def:hH:l:L:m:nr:pP:suStV", long: "show-all nonprintable-notation= binary= plain language= highlight-line= file-name= diff " +
			"diff-context= tabs= wrap= chop-long-lines terminal-width= number color= italic-text= decorations= force-colorization paging= no-paging map-syntax= " +
			"theme= theme-light= theme-dark= list-themes squeeze-blank squeeze-limit= strip-ansi= style= line-range= list-languages unbuffered help version"}, true
	case "rev", "tsort":
		return options{}, true
	case "column":
		return options{short: "c:dE:eH:i:JlmN:no:O:p:r:R:s:tT:W:xL", long: "columns= separator= output-separator= table table-columns= json tree= table-right="}, true
	case "expand", "unexpand":
		return options{short: "ait:", long: "all first-only initial tabs=", digits: true}, true
	case "base64", "base32":
		return options{short: "dDb:iw:h", long: "decode ignore-garbage wrap= break= help"}, true
	}
	return options{}, false
}

// reader interprets a command that reads its operands; false: it is none. Some have an option, or an operand, that writes.
func (c *call) reader() bool {
	if spec, ok := readerOptions(c.name); ok {
		p := c.parse(spec)
		if c.name == "diff" {
			for _, o := range p.given {
				if o.name == "from-file" || o.name == "to-file" {
					c.r.read(c.sc, o.value)
				}
			}
		}
		c.readAll(p.operands)
		return true
	}
	switch c.name {
	case "sort":
		spec := options{short: "bcCdfghik:mMno:rRsS:t:T:uVyz", long: "ignore-leading-blanks dictionary-order ignore-case general-numeric-sort ignore-nonprinting " +
			"month-sort human-numeric-sort numeric-sort random-sort random-source= reverse sort= version-sort batch-size= check? debug files0-from= key= merge " +
			"output= stable buffer-size= field-separator= temporary-directory= parallel= unique zero-terminated"}
		p := c.parse(spec)
		if out, ok := p.get("o", "output"); ok {
			c.r.write(c.sc, out.value, Write{})
		}
		c.readAll(p.operands)
	case "shuf":
		p := c.parse(options{short: "ei:n:o:rz", long: "echo input-range= head-count= output= random-source= repeat zero-terminated"})
		if out, ok := p.get("o", "output"); ok {
			c.r.write(c.sc, out.value, Write{})
		}
		if !p.is("e", "echo") {
			c.readAll(p.operands)
		}
	case "uniq":
		spec := options{short: "cdDf:is:uw:z", digits: true, long: "count repeated all-repeated? skip-fields= group? ignore-case skip-chars= unique zero-terminated check-chars="}
		c.inAndOut(c.parse(spec).operands)
	case "xxd":
		spec := options{short: "abc:Cdeg:hil:n:o:pPrR:s:uv", long: "autoskip bits cols= capitalize EBCDIC groupsize= include len= name= offset= plain postscript ps revert seek= uppercase color="}
		c.inAndOut(c.parseSingleDash(spec).operands)
	case "grep", "egrep", "fgrep", "zgrep":
		spec := options{short: "EFGPe:f:iyvwxcLlm:oqsbHhnTZA:B:C:aD:d:IrRUzu", digits: true, long: "extended-regexp fixed-strings basic-regexp perl-regexp regexp= file= " +
			"ignore-case no-ignore-case invert-match word-regexp line-regexp count color? colour? files-without-match files-with-matches max-count= only-matching " +
			"quiet silent no-messages byte-offset with-filename no-filename label= line-number initial-tab null after-context= before-context= context= text " +
			"binary-files= devices= directories= exclude= exclude-from= exclude-dir= include= recursive dereference-recursive line-buffered binary null-data " +
			"unix-byte-offsets"}
		c.search(c.parse(spec), "e", "regexp")
	case "rg":
		spec := options{short: "e:f:.FE:sSiPULvxwm:j:M:g:d:ut:T:A:B:C:O:cHIh0noqr:Nplz.abTV", long: "regexp= file= case-sensitive smart-case ignore-case fixed-strings " +
			"invert-match line-regexp word-regexp max-count= threads= max-columns= max-columns-preview max-depth= max-filesize= glob= iglob= glob-case-insensitive type= type-not= " +
			"hidden no-hidden no-ignore no-ignore-vcs no-ignore-parent no-ignore-global no-ignore-dot follow multiline multiline-dotall pcre2 engine= encoding= after-context= " +
			"before-context= context= count count-matches column color= colors= heading no-heading line-number no-line-number only-matching passthru pretty replace= " +
			"files files-with-matches files-without-match json vimgrep stats sort= sortr= trim null null-data text binary crlf debug trace quiet no-filename " +
			"with-filename type-list search-zip unrestricted no-config no-messages no-mmap mmap block-buffered line-buffered one-file-system context-separator= " +
			"field-match-separator= field-context-separator= path-separator= byte-offset include-zero no-unicode unicode auto-hybrid-regex help version no-require-git"}
		p := c.parse(spec)
		if p.is("files", "type-list") {
			return true
		}
		c.search(p, "e", "regexp")
	case "sed", "gsed":
		c.sed()
	case "awk", "gawk", "mawk", "nawk":
		c.awk()
	case "jq":
		c.jq()
	case "yq":
		c.yq()
	default:
		return false
	}
	return true
}

// readAll reads operands; "-" is the standard input.
func (c *call) readAll(operands []word) {
	for _, w := range operands {
		if w.text != "-" {
			c.r.read(c.sc, w)
		}
	}
}

// inAndOut reads the first operand and writes the second.
func (c *call) inAndOut(operands []word) {
	for i, w := range operands {
		switch {
		case w.many || w.perhaps:
			c.r.opaque = true // it may be both
		case w.text == "-":
		case i == 0:
			c.r.read(c.sc, w)
		case i == 1:
			c.r.write(c.sc, w, Write{})
		}
	}
}

// parseSingleDash is parse for a command that spells long options with one dash.
func (c *call) parseSingleDash(spec options) parsed {
	c.args = slices.Clone(c.args)
	for i, w := range c.args {
		name, _, _ := strings.Cut(strings.TrimPrefix(w.text, "-"), "=")
		if _, ok := spec.longOption(name); ok && len(name) > 2 && strings.HasPrefix(w.text, "-") {
			c.args[i].text = "-" + w.text
		}
	}
	return c.parse(spec)
}

// search reads what is searched: the first operand is the pattern, unless an option has it. Patterns in a file are read too.
func (c *call) search(p parsed, pattern ...string) {
	files := p.operands
	given := p.is(pattern...)
	for _, o := range p.given {
		if o.name == "f" || o.name == "file" {
			given = true
			c.readAll([]word{o.value})
		}
	}
	if !given && len(files) > 0 {
		files = files[1:]
	}
	c.readAll(files)
}

// jq reads the files after its filter.
func (c *call) jq() {
	var files []word
	filter, rest := false, false
	for i := 0; i < len(c.args); i++ {
		w := c.args[i]
		file := func(skip int) {
			if i+skip < len(c.args) {
				c.r.read(c.sc, c.args[i+skip])
			}
			i += skip
		}
		switch {
		case rest || !strings.HasPrefix(w.text, "-") || w.text == "-":
			if filter {
				files = append(files, w)
			}
			filter = true
		case w.text == "--":
			rest = true
		case w.text == "-f" || w.text == "--from-file":
			filter = true
			file(1)
		case w.text == "--slurpfile" || w.text == "--rawfile":
			file(2)
		case w.text == "--arg" || w.text == "--argjson":
			i += 2
		case w.text == "--indent" || w.text == "-L":
			i++
		case w.text == "--args" || w.text == "--jsonargs":
			return
		case strings.HasPrefix(w.text, "--"):
			switch w.text[2:] {
			case "raw-output", "compact-output", "null-input", "slurp", "raw-input", "sort-keys", "color-output", "monochrome-output", "ascii-output",
				"join-output", "tab", "exit-status", "seq", "stream", "stream-errors", "unbuffered", "raw-output0", "binary", "help", "version":
			default:
				c.r.opaque = true
			}
		case !w.known || strings.Trim(w.text[1:], "rcnsRSCMajehVb") != "":
			c.r.opaque = true
		}
	}
	c.readAll(files)
}

// yq reads the files after its expression, or edits them.
func (c *call) yq() {
	spec := options{short: "CMPNejniI:o:p:s:rv0yYtSw:", long: "inplace in-place colors no-colors prettyPrint no-doc exit-status tojson null-input indent= output-format= " +
		"input-format= split-exp= unwrapScalar? verbose from-file= front-matter= header-preprocess raw-output yaml-output xml-output toml-output"}
	p := c.parse(spec)
	files := p.operands
	if len(files) > 0 && files[0].known {
		switch files[0].text {
		case "eval", "e", "eval-all", "ea":
			files = files[1:]
		}
	}
	if file, ok := p.get("from-file"); ok {
		c.r.read(c.sc, file.value)
	} else if len(files) > 0 {
		files = files[1:]
	}
	switch {
	case p.is("s", "split-exp"):
		c.r.opaque = true
	case p.is("i", "inplace", "in-place"):
		for _, f := range files {
			c.r.write(c.sc, f, Write{})
		}
		return
	}
	c.readAll(files)
}
