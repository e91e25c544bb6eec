package mcpd

import (
	"context"
	"strings"
)

func memoryTools() []*tool {
	paths := `"type":"array","items":{"type":"string"}`
	return []*tool{
		{group: memory, name: "remember", about: "Leave a fact for whoever works on these files next. The same name later supersedes it.",
			takes: []argument{{name: "name"}, {name: "text"}, {name: "paths?", schema: paths, about: "files it is about, perhaps with :20-40"}}, do: remember},
		{group: memory, name: "recall", about: "Find facts, cached answers and plans, by words or by a path; all without either.", hints: hints{reads: true},
			takes: []argument{{name: "query?"}, {name: "path?"}}, do: recall},
		{group: memory, name: "why", about: "Tell a file's story: facts, what sessions did, and commits.", hints: hints{reads: true}, takes: []argument{{name: "path"}}, do: why},
		{group: memory, name: "who", about: "Say who is at work in this repository, on what, and who holds which files.", hints: hints{reads: true}, do: who},
		{group: memory, name: "plan", about: "Say what you mean to do and what you decided, in place of what you said before; neither: it is done.", hints: hints{again: true},
			takes: []argument{{name: "text?"}, {name: "decided?", schema: textsSchema}}, do: plan},
		{group: memory, name: "claim", about: "Claim files before you write them: all or none, for 10 minutes; each call of a tool renews it. Says who holds what you are refused.", hints: hints{again: true},
			takes: []argument{{name: "paths", schema: paths}}, do: claim},
		{group: memory, name: "release", about: "Let go of files that you hold.", hints: hints{again: true}, takes: []argument{{name: "paths", schema: paths}}, do: release},
	}
}

func remember(ctx context.Context, c *call) (any, error) {
	name, err := c.args.text("name")
	if err != nil {
		return nil, err
	}
	text, err := c.args.text("text")
	if err != nil {
		return nil, err
	}
	paths, err := c.args.texts("paths")
	if err != nil {
		return nil, err
	}
	return c.host.Remember(ctx, c.speaker(), name, text, paths)
}

func recall(ctx context.Context, c *call) (any, error) {
	query, err := c.args.text("query")
	if err != nil {
		return nil, err
	}
	path, err := c.args.text("path")
	if err != nil {
		return nil, err
	}
	return c.host.Recall(ctx, c.speaker(), query, path)
}

func why(ctx context.Context, c *call) (any, error) {
	path, err := c.args.text("path")
	if err != nil {
		return nil, err
	}
	return c.host.Why(ctx, c.speaker(), path)
}

func who(ctx context.Context, c *call) (any, error) { return c.host.Who(ctx, c.speaker()) }

func plan(ctx context.Context, c *call) (any, error) {
	text, err := c.args.text("text")
	if err != nil {
		return nil, err
	}
	decided, err := c.args.texts("decided")
	if err != nil {
		return nil, err
	}
	if _, err := c.host.Plan(ctx, c.speaker(), text, decided); err != nil {
		return nil, err
	}
	if strings.TrimSpace(text) == "" && len(decided) == 0 {
		return "The plan is cleared.", nil
	}
	return "The plan is noted.", nil
}

func claim(ctx context.Context, c *call) (any, error) {
	paths, err := c.paths()
	if err != nil {
		return nil, err
	}
	return c.host.Claim(ctx, c.speaker(), paths)
}

// released is the answer to release.
type released struct {
	Released []string `json:"released"`
}

func release(ctx context.Context, c *call) (any, error) {
	paths, err := c.paths()
	if err != nil {
		return nil, err
	}
	freed, err := c.host.Release(ctx, c.speaker(), paths)
	if err != nil {
		return nil, err
	}
	return released{freed}, nil
}

func (c *call) paths() ([]string, error) {
	paths, err := c.args.texts("paths")
	if err == nil && len(paths) == 0 {
		err = refusal(`missing required argument "paths"`)
	}
	return paths, err
}
