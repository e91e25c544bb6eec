package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/BurntSushi/toml"

	"knoot.dev/knoot/arbiter/wire"
	"knoot.dev/knoot/gitlog"
)

// operatorTokens is the file in the home folder that holds operators' tokens, by the address of the relay. Its owner alone reads it.
const operatorTokens = "login.toml"

// OperatorToken returns the operator's token for a relay: KNOOT_TOKEN, else the one that `knoot login` kept; "" for none.
func OperatorToken(getenv func(string) string, home *gitlog.Home, relay string) (string, error) {
	if token := getenv("KNOOT_TOKEN"); token != "" {
		return token, nil
	}
	tokens, err := readTokens(home)
	return tokens[relay], err
}

// KeepOperatorToken keeps a relay's token for later.
func KeepOperatorToken(home *gitlog.Home, relay, token string) error {
	if len(token) > wire.MaxToken {
		return fmt.Errorf("a token has at most %d characters", wire.MaxToken)
	}
	if err := home.Make(); err != nil {
		return err
	}
	tokens, err := readTokens(home)
	if err != nil {
		return err
	}
	tokens[relay] = token
	var text bytes.Buffer
	err = toml.NewEncoder(&text).Encode(map[string]any{"relay": tokens})
	if err == nil {
		err = gitlog.ReplaceFile(home.Path(operatorTokens), text.Bytes(), 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot keep the token: %w", err)
	}
	return nil
}

func readTokens(home *gitlog.Home) (map[string]string, error) {
	text, err := os.ReadFile(home.Path(operatorTokens))
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, err
	}
	var file struct {
		Relay map[string]string `toml:"relay"`
	}
	if _, err := toml.Decode(string(text), &file); err != nil {
		return nil, fmt.Errorf("%s does not parse: mend it, or remove it and run `knoot login` again: %w", home.Path(operatorTokens), err)
	}
	if file.Relay == nil {
		file.Relay = map[string]string{}
	}
	return file.Relay, nil
}
