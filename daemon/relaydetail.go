package daemon

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// relayDetail is what is sealed beside tokens: what other machines show of an event. The keys of what does not apply are absent.
// docs/formats has it as the rule detail.
type relayDetail struct {
	Path    []byte `cbor:"1,keyasint,omitempty"` // as it is spelled
	Branch  string `cbor:"2,keyasint,omitempty"` // full ref name
	Agent   string `cbor:"3,keyasint,omitempty"` // of the session, as hooks name it
	Session string `cbor:"4,keyasint,omitempty"` // its id
	Name    string `cbor:"5,keyasint,omitempty"` // KNOOT_AGENT
	Owner   string `cbor:"6,keyasint,omitempty"` // the address of its person
	Private bool   `cbor:"7,keyasint,omitempty"`
	Text    string `cbor:"8,keyasint,omitempty"` // an intent, a plan, a message
	// Of a message: its id, whom the sender named, and whether it holds a turn open.
	ID     string `cbor:"9,keyasint,omitempty"`
	To     string `cbor:"10,keyasint,omitempty"`
	Urgent bool   `cbor:"11,keyasint,omitempty"`
	// Of MemoryPublished: the files of the segment, in room order, as they are stored.
	Segment [][]byte `cbor:"12,keyasint,omitempty"`
}

var (
	detailEncoding = must(cbor.CoreDetEncOptions().EncMode())
	detailDecoding = must(cbor.DecOptions{DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		MaxNestedLevels: 8, MaxMapPairs: 64, MaxArrayElements: 256}.DecMode())
)

// must is for values that are the same at each start.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (d relayDetail) encode() []byte {
	text, err := detailEncoding.Marshal(d)
	if err != nil {
		return nil // bytes, texts and truths always encode
	}
	return text
}

// Why a detail is refused.
var (
	errDetailForm  = errors.New("is no CBOR as it must be")
	errDetailOrder = errors.New("is not in the one encoding of its value")
	errDetailType  = errors.New("has a value of the wrong type, or an empty one")
	errDetailNull  = errors.New("holds null")
)

// decodeDetail reads the text of a live payload. Keys of later are passed over. The members of a team sign what they send, and are
// believed no more than that for it.
func decodeDetail(text []byte) (d relayDetail, err error) {
	var all map[uint64]any
	if err := detailDecoding.Unmarshal(text, &all); err != nil {
		var wrong *cbor.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return d, fmt.Errorf("a detail %w: %w", errDetailType, err)
		}
		return d, fmt.Errorf("a detail %w: %w", errDetailForm, err)
	}
	if again, err := detailEncoding.Marshal(all); err != nil || !bytes.Equal(again, text) {
		return d, fmt.Errorf("a detail %w", errDetailOrder)
	}
	for key, v := range all {
		empty := false
		switch v := v.(type) {
		case nil:
			return d, fmt.Errorf("a detail, key %d, %w", key, errDetailNull)
		case bool:
			empty = !v
		case string:
			empty = v == ""
		case []byte:
			empty = len(v) == 0
		case []any:
			empty = len(v) == 0
		}
		if empty {
			return d, fmt.Errorf("a detail, key %d, %w", key, errDetailType)
		}
	}
	if err := detailDecoding.Unmarshal(text, &d); err != nil {
		return relayDetail{}, fmt.Errorf("a detail %w: %w", errDetailType, err)
	}
	return d, nil
}
