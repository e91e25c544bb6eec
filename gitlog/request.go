package gitlog

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

// A request asks to be let into a team: the keys of a device, signed by it. Who asks is sealed to the members.

const (
	requestContext signingContext = "knoot/request/1"

	requestVersion = 1
	requestFile    = "request" // the one blob in its commit's tree

	maxRequest  = 16 << 10
	maxRequests = 50 // that are shown: whoever can push can ask
	// maxRequestsRead bounds what junk in their place can cost.
	maxRequestsRead = 1_000
	maxRequestText  = 256 // bytes of each text
)

var errRequest = errors.New("is no request to join this team")

// JoinRequest is somebody's wish to be let in. Nothing in it is true but that the keys are one device's: compare the fingerprint
// with what is shown to the person, over another way than the host.
type JoinRequest struct {
	Team      TeamID
	Device    DeviceID
	Key       ed25519.PublicKey
	Recipient string
	Time      Millis // as the device says
	Name      string // these three are empty where the sealed part does not open
	Address   string
	Label     string

	epoch  uint64 // of general, which the texts are sealed to
	sealed []byte
	rest   Digest // of the payload without them
}

// Expires is when the request ends.
func (q *JoinRequest) Expires() Millis {
	return q.Time + MillisOf(time.Unix(invitationDays*24*3600, 0))
}

// Fingerprint is four words of 64 bits over the team and both keys, to be compared by people. Consonants and vowels take
// turns, so that they can be read out.
func (q *JoinRequest) Fingerprint() string {
	h := sha256.New()
	h.Write([]byte(requestContext))
	h.Write([]byte{0})
	h.Write(q.Team[:])
	h.Write(q.Key)
	h.Write([]byte(q.Recipient))
	sum := h.Sum(nil)
	var words []string
	for i := 0; i < 8; i += 2 {
		n := uint16(sum[i])<<8 | uint16(sum[i+1])
		words = append(words, string([]byte{
			consonants[n>>12], vowels[n>>10&3], consonants[n>>6&15], vowels[n>>4&3], consonants[n&15],
		}))
	}
	return strings.Join(words, "-")
}

const (
	consonants = "bdfghjklmnprstvz"
	vowels     = "aiou"
)

// encodeRequest makes a request of a device, its texts sealed to the team's members.
func encodeRequest(device *Device, r *Roster, q *JoinRequest) ([]byte, error) {
	general := r.Rooms[r.General].Current()
	payload := intMap{
		1: uint64(requestVersion), 2: r.Team[:], 3: []byte(device.Sign.Public().(ed25519.PublicKey)), 4: device.Age.Recipient().String(),
		5: uint64(q.Time), 6: general.Number,
	}
	rest := sha256.Sum256(encodeCBOR(payload))
	text := intMap{}
	text.set(1, cutText(q.Name))
	text.set(2, cutText(q.Address))
	text.set(3, cutText(q.Label))
	to, err := general.sealsTo()
	if err != nil {
		return nil, err
	}
	sealed, err := seal(to, encodeCBOR(intMap{1: rest[:], 2: text}))
	if err != nil {
		return nil, err
	}
	payload[7] = sealed
	return sign(device.Sign, requestContext, encodeCBOR(map[any]any{labelAlgorithm: algorithmEdDSA, labelKeyID: device.ID[:]}), encodeCBOR(payload))
}

func cutText(s string) string {
	s = strings.ToValidUTF8(strings.TrimSpace(s), "")
	if len(s) > maxRequestText {
		s = strings.ToValidUTF8(s[:maxRequestText], "")
	}
	return s
}

// parseRequest checks a request's form and signature; its texts are still sealed.
func parseRequest(data []byte, team TeamID) (*JoinRequest, error) {
	if len(data) > maxRequest {
		return nil, fmt.Errorf("%d bytes: %w of %d", len(data), errTooLarge, maxRequest)
	}
	s, err := parseSigned(data)
	if err != nil {
		return nil, err
	}
	v, err := decodeStrict(s.protected)
	if err != nil {
		return nil, err
	}
	f, err := openFields(v, "protected header")
	if err != nil {
		return nil, err
	}
	kid, err := readSigner(f)
	if err == nil {
		err = f.finish()
	}
	if err != nil {
		return nil, err
	}
	if v, err = decodeStrict(s.payload); err != nil {
		return nil, err
	}
	if f, err = openFields(v, "payload"); err != nil {
		return nil, err
	}
	q := &JoinRequest{Key: make(ed25519.PublicKey, ed25519.PublicKeySize)}
	if version := f.uint(1, 1); version > requestVersion {
		f.newer(1, version)
	}
	f.fixed(2, q.Team[:])
	f.fixed(3, q.Key)
	_, q.Recipient = f.recipient(4)
	q.Time = f.millis(5)
	q.epoch = f.uint(6, 1)
	q.sealed = f.bytes(7)
	if err := f.finish(); err != nil {
		return nil, err
	}
	q.Device = DeviceIDOf(q.Key)
	switch {
	case q.Device != kid:
		return nil, errKeyID
	case q.Team != team:
		return nil, fmt.Errorf("for team %s: %w", q.Team, errRequest)
	}
	if err := s.verify(q.Key, requestContext); err != nil {
		return nil, err
	}
	rest := maps.Clone(f.m)
	delete(rest, uint64(7))
	q.rest = sha256.Sum256(encodeCBOR(rest))
	return q, nil
}

// openTexts opens who asks, if the ring has the key.
func (q *JoinRequest) openTexts(general RoomID, ring Keyring) error {
	key := ring[RoomEpoch{general, q.epoch}]
	if key == nil {
		return nil
	}
	v, _, err := key.open(q.sealed)
	if err != nil {
		return err
	}
	f, err := openFields(v, "sealed part")
	if err != nil {
		return err
	}
	var inside Digest
	f.fixed(1, inside[:])
	record, _ := f.need(2)
	if f.odd != nil {
		return f.odd
	}
	texts, err := openFields(record, "texts")
	if err != nil {
		return err
	}
	for key, text := range map[uint64]*string{1: &q.Name, 2: &q.Address, 3: &q.Label} {
		if *text = withoutControls(texts.textIf(key)); len(*text) > maxRequestText {
			texts.fail(key, errTooLarge)
		}
	}
	f.within(texts.finish())
	if err := f.finish(); err != nil {
		return err
	}
	if inside != q.rest {
		return errMoved
	}
	return nil
}

// withoutControls takes out what could move a terminal's cursor: anybody who can push can ask.
func withoutControls(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, s)
}

// Requests lists who asks to be let in, as the last fetch brought it: at most 50 of the last seven days, the newest first.
// dropped counts more. Devices that are or were in the team are left out, and so is what is no right request.
func (c *Clone) Requests(ctx context.Context) (requests []*JoinRequest, dropped int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	at, err := c.rosterRemote()
	if err != nil || at == nil || c.roster == nil {
		return nil, 0, err
	}
	found, _, err := openRefs(c.Repo).list(ctx, at.inbox+"team/request/")
	if err != nil {
		return nil, 0, err
	}
	objects, err := c.store(ctx)
	if err != nil {
		return nil, 0, err
	}
	now := MillisOf(c.now())
	for i, ref := range found {
		if i == maxRequestsRead {
			dropped += len(found) - i
			break
		}
		place, ok := parseRefPlace(strings.TrimPrefix(ref.Name, at.inbox))
		if !ok || c.roster.device(*place.Request) != nil {
			continue
		}
		q, err := readRequest(ctx, objects, ref.Hash, c.roster.Team)
		if err != nil || q.Device != *place.Request || now >= q.Expires() || q.Time > now+clockSkew {
			continue
		}
		requests = append(requests, q)
	}
	slices.SortStableFunc(requests, func(a, b *JoinRequest) int {
		if a.Time != b.Time {
			if a.Time > b.Time {
				return -1
			}
			return 1
		}
		return bytes.Compare(a.Device[:], b.Device[:])
	})
	if len(requests) > maxRequests {
		dropped += len(requests) - maxRequests
		requests = requests[:maxRequests]
	}
	for _, q := range requests {
		if err := q.openTexts(c.roster.General, c.keys); err != nil {
			q.Name, q.Address, q.Label = "", "", ""
		}
	}
	return requests, dropped, nil
}

func readRequest(ctx context.Context, objects *objectStore, tip Hash, team TeamID) (*JoinRequest, error) {
	commit, err := objects.readCommit(ctx, tip)
	if err != nil {
		return nil, err
	}
	files, err := objects.readFiles(ctx, commit.Tree, fileLimits{Files: 1, Bytes: maxRequest})
	if err != nil {
		return nil, err
	}
	data, ok := files[requestFile]
	if !ok {
		return nil, errRequest
	}
	return parseRequest(data, team)
}
