package gitlog

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"time"
)

const (
	// rulesTime is how long a write waits for git's word on its files; without one they are ordinary.
	rulesTime = 20 * time.Millisecond
	// rulesHang is how long git may be silent before its process is ended, to be started again.
	rulesHang = 5 * time.Second
	// rulesAge is how long a process goes on by the rules that it has read. Changes of those in the repository are seen at
	// once, those of the person's own files elsewhere after this.
	rulesAge = 10 * time.Minute
	// rulesChunk is how many bytes of questions are on their way at a time: fewer than any pipe holds, so that neither side
	// waits for the other to read.
	rulesChunk = 4 << 10
	// rulesRetries bounds the processes that one question may cost.
	rulesRetries = 16
)

// Rules are what git says about the paths of a worktree: whether they are ignored, and whether they are generated. Two git
// processes answer, which are started when they are first asked and live as long as they are of use. Its methods may be called
// from several goroutines.
type Rules struct {
	repo       *Repository
	ctx        context.Context // of the processes
	cancel     context.CancelFunc
	ignored    *ruleProcess
	attributes *ruleProcess
	gitDirs    []string // git directories inside the worktree, whatever their name
}

// OpenRules returns the rules of the repository's worktree. It runs nothing.
func OpenRules(repo *Repository) *Rules {
	r := &Rules{repo: repo}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.ignored = &ruleProcess{
		rules: r, file: ".gitignore", info: "exclude", fields: 4, turn: make(chan struct{}, 1),
		args: []string{"check-ignore", "--stdin", "-z", "--verbose", "--non-matching"},
	}
	r.attributes = &ruleProcess{
		rules: r, file: ".gitattributes", info: "attributes", fields: 3, turn: make(chan struct{}, 1),
		args: []string{"check-attr", "--stdin", "-z", "linguist-generated"},
	}
	for _, dir := range []string{repo.GitDir, repo.CommonDir} {
		if inside, ok := strings.CutPrefix(dir, repo.Root+"/"); ok && repo.Root != "" {
			r.gitDirs = append(r.gitDirs, inside)
		}
	}
	return r
}

// Close ends the processes. Whatever is asked then is ordinary.
func (r *Rules) Close() {
	r.cancel()
	for _, p := range []*ruleProcess{r.ignored, r.attributes} {
		p.turn <- struct{}{} // whoever has the turn has lost its process and is about to notice
		p.end()
		<-p.turn
	}
}

// Kinds says of each path what claims make of it. note are further paths that are noted. It takes 20 ms at most; a path that
// git has not judged by then is taken for one that it has no rule about.
func (r *Rules) Kinds(ctx context.Context, paths []string, note PathSet) []FileKind {
	ctx, cancel := context.WithTimeout(ctx, rulesTime)
	defer cancel()
	return r.KindsUntil(ctx, paths, note)
}

// Warm starts the processes, and replaces those that are old, so that Kinds finds them ready. It is not for hooks.
func (r *Rules) Warm(ctx context.Context) {
	for _, p := range []*ruleProcess{r.ignored, r.attributes} {
		select {
		case p.turn <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if p.process != nil && time.Since(p.started) > rulesAge {
			p.end()
		}
		<-p.turn
	}
	ctx, cancel := context.WithTimeout(ctx, rulesHang)
	defer cancel()
	r.KindsUntil(ctx, []string{SettingsFile}, PathSet{})
}

// KindsUntil does what Kinds does with the patience of ctx.
func (r *Rules) KindsUntil(ctx context.Context, paths []string, note PathSet) []FileKind {
	kinds := make([]FileKind, len(paths))
	var asked []string
	var where []int
	for i, path := range paths {
		switch {
		case r.inGitDir(path):
			kinds[i] = FileIgnored
		case askable(path):
			asked, where = append(asked, path), append(where, i)
		}
	}
	if r.repo.Root == "" || len(asked) == 0 {
		return kinds
	}
	ignored := r.ignored.ask(ctx, asked)
	attributes := r.attributes.ask(ctx, asked)
	ignoredAnswers, attributeAnswers := ignored(), attributes()
	for n, path := range asked {
		var source, pattern, generated string
		if ignoredAnswers != nil && ignoredAnswers[n] != nil {
			source, pattern = ignoredAnswers[n][0], ignoredAnswers[n][2]
		}
		if attributeAnswers != nil && attributeAnswers[n] != nil {
			generated = attributeAnswers[n][2]
		}
		switch {
		case source != "" && !strings.HasPrefix(pattern, "!"):
			kinds[where[n]] = FileIgnored
		case note.Match(path), generated == "set", generated == "true":
			kinds[where[n]] = FileNoted
		case generated == "unset", generated == "false":
			// Whoever says so knows better than a list of names.
		case isMade(path):
			kinds[where[n]] = FileNoted
		}
	}
	return kinds
}

func (r *Rules) inGitDir(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if strings.EqualFold(part, ".git") {
			return true
		}
	}
	return slices.ContainsFunc(r.gitDirs, func(dir string) bool { return path == dir || within(path, dir) })
}

// askable leaves out what git would take for the end of the conversation.
func askable(path string) bool {
	if path == "" || path[0] == '/' || strings.IndexByte(path, 0) >= 0 {
		return false
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == ".." {
			return false
		}
	}
	return true
}

// ruleProcess asks a git process that reads paths and writes what it knows of each. git reads the rules and the index once,
// so the process is ended when these are seen to have changed.
type ruleProcess struct {
	rules  *Rules
	args   []string
	fields int    // of an answer
	file   string // where rules stand in a folder
	info   string // and in the common git directory, below info

	turn     chan struct{} // holds one value while somebody asks; guards what follows
	process  *batchProcess // nil: none runs
	started  time.Time
	answered bool                 // the process has, something
	read     map[string]ruleStamp // the files of rules that the process may have read
	index    ruleStamp
}

// ruleStamp is what a file was when the process may have read it.
type ruleStamp struct {
	stamp
	settled bool
}

func stampRule(file string) ruleStamp {
	s := stampOf(file)
	return ruleStamp{s, s.settled(time.Now())}
}

// holds says whether the file is certainly as it was.
func (s ruleStamp) holds(file string) bool { return s.settled && stampOf(file) == s.stamp }

// ask begins to ask; the function that it returns waits for the answers, as long as ctx lets it. They stand in the order of
// paths; nil for a path that git has no answer to, nil for all where they are late. git goes on then and is listened to, so
// that the next question meets a process that is ready.
func (p *ruleProcess) ask(ctx context.Context, paths []string) func() [][]string {
	nothing := func() [][]string { return nil }
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nothing
	}
	if p.rules.ctx.Err() != nil {
		<-p.turn
		return nothing
	}
	answers := make(chan [][]string, 1)
	go func() {
		defer func() { <-p.turn }()
		answers <- p.converse(paths)
	}()
	return func() [][]string {
		select {
		case all := <-answers:
			return all
		case <-ctx.Done():
			return nil
		}
	}
}

// converse asks about each path. A path at which git gives up is left without an answer. p's turn is held.
func (p *ruleProcess) converse(paths []string) [][]string {
	answers := make([][]string, len(paths))
	p.notice(paths)
	again := false // a process was started for want of a fresh index already
	for next, failed := 0, 0; next < len(paths) && failed < rulesRetries; {
		end, size := next, 0
		for end < len(paths) && (end == next || size+len(paths[end]) < rulesChunk) {
			size += len(paths[end]) + 3
			end++
		}
		got, err := p.exchange(paths[next:end], answers[next:end])
		if p.rules.ctx.Err() != nil {
			return answers
		}
		if err == nil && !again && p.file == ".gitignore" && !p.index.holds(p.indexFile()) &&
			slices.ContainsFunc(answers[next:end], func(a []string) bool { return a[0] != "" }) {
			// A file that was added in spite of the rules is no longer ignored, and git has read the index before.
			p.end()
			again = true
			continue
		}
		next += got
		if err != nil {
			// A process that has answered before may have been ended by somebody. One that has not ended at this path.
			if failed++; !p.answered {
				next++
			}
			p.end()
		}
	}
	return answers
}

func (p *ruleProcess) indexFile() string { return p.rules.repo.GitDir + "/index" }

// exchange sends paths and reads the answers to them; got is how many there were before an error.
func (p *ruleProcess) exchange(paths []string, answers [][]string) (got int, err error) {
	if p.process == nil {
		if err := p.start(); err != nil {
			return 0, err
		}
		p.notice(paths)
	}
	watchdog := time.AfterFunc(rulesHang, p.process.stop)
	defer watchdog.Stop()
	var question bytes.Buffer
	for _, path := range paths {
		if path[0] == ':' {
			question.WriteString("./") // a colon alone would begin one of git's patterns
		}
		question.WriteString(path)
		question.WriteByte(0)
	}
	if _, err := p.process.ask.Write(question.Bytes()); err != nil {
		// What git answered before it went is still to be read.
		if got, rerr := p.receive(answers); rerr != nil {
			return got, rerr
		}
		return len(answers), err
	}
	return p.receive(answers)
}

func (p *ruleProcess) receive(answers [][]string) (int, error) {
	for i := range answers {
		answer := make([]string, p.fields)
		for n := range answer {
			field, err := p.process.answer.ReadString(0)
			if err != nil {
				return i, err
			}
			answer[n] = field[:len(field)-1]
		}
		answers[i], p.answered = answer, true
	}
	return len(answers), nil
}

// notice ends the process if rules about one of the paths are not what they were when it read them.
func (p *ruleProcess) notice(paths []string) {
	if p.process == nil {
		return
	}
	repo, known := p.rules.repo, len(p.read)
	look := func(file string) bool {
		was, ok := p.read[file]
		if !ok {
			p.read[file] = stampRule(file)
			return true
		}
		return was.holds(file)
	}
	same := look(repo.CommonDir+"/config") && look(repo.CommonDir+"/info/"+p.info) && look(repo.Root+"/"+p.file)
	for _, path := range paths {
		for i := 0; same && i < len(path); i++ {
			if path[i] == '/' {
				same = look(repo.Root + "/" + path[:i] + "/" + p.file)
			}
		}
	}
	if !same || known > maxRemembered {
		p.end()
	}
}

func (p *ruleProcess) start() error {
	ctx, stop := context.WithCancel(p.rules.ctx)
	cmd := git{dir: p.rules.repo.Root, config: []string{"core.fsmonitor=false"}}.command(ctx, p.args...)
	cmd.WaitDelay = 0 // nothing but git has the pipes
	process := &batchProcess{cmd: cmd, stop: stop}
	p.read, p.index, p.started = map[string]ruleStamp{}, stampRule(p.indexFile()), time.Now()
	var out io.ReadCloser
	var err error
	if process.ask, err = cmd.StdinPipe(); err == nil {
		if out, err = cmd.StdoutPipe(); err == nil {
			process.answer = bufio.NewReader(out)
			err = cmd.Start()
		}
	}
	if err != nil {
		stop()
		return err
	}
	p.process, p.answered = process, false
	return nil
}

// end ends the process; the next question starts one.
func (p *ruleProcess) end() {
	if p.process == nil {
		return
	}
	p.process.stop()
	_ = p.process.ask.Close()
	_ = p.process.cmd.Wait()
	p.process = nil
}
