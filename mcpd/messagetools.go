package mcpd

import (
	"context"

	"knoot.dev/knoot/daemon"
)

func messageTools() []*tool {
	return []*tool{
		{group: coordination, name: "send-message", about: "Send a message to one agent, by its id or the beginning of its session's id, or to a person, by address or name.",
			takes: []argument{{name: "to"}, {name: "message"}, {name: "urgent?", schema: truthSchema, about: "its turn does not end before it has read this; three an hour"}}, do: sendMessage},
		{group: coordination, name: "check-messages", about: "Read your unread messages, which are read then.",
			takes: []argument{{name: "peek?", schema: truthSchema, about: "leave them unread"}}, do: checkMessages},
		{group: coordination, name: "broadcast-message", about: "Send a message to all registered agents here. Returns how many they are.",
			takes: []argument{{name: "message"}}, do: broadcastMessage},
	}
}

// sent is the answer to send-message.
type sent struct {
	ID string `json:"id"`
}

func sendMessage(ctx context.Context, c *call) (any, error) {
	to, err := c.args.text("to")
	if err != nil {
		return nil, err
	}
	text, err := c.args.text("message")
	if err != nil {
		return nil, err
	}
	urgent, err := c.args.truth("urgent")
	if err != nil {
		return nil, err
	}
	answer, err := c.host.Send(ctx, c.speaker(), daemon.MessageRequest{To: to, Text: text, Urgent: urgent})
	if err != nil {
		return nil, err
	}
	return sent{answer.ID}, nil
}

func checkMessages(ctx context.Context, c *call) (any, error) {
	peek, err := c.args.truth("peek")
	if err != nil {
		return nil, err
	}
	return c.host.Unread(ctx, c.speaker(), !peek)
}

// heard is the answer to broadcast-message.
type heard struct {
	Count int `json:"count"`
}

func broadcastMessage(ctx context.Context, c *call) (any, error) {
	text, err := c.args.text("message")
	if err != nil {
		return nil, err
	}
	count, err := c.host.Broadcast(ctx, c.speaker(), text)
	if err != nil {
		return nil, err
	}
	return heard{count}, nil
}
