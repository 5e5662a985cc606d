package trigger

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// id is a hash of texts: half a SHA-256, long enough that nobody finds a collision.
type id [16]byte

// idOf returns the id of a list of texts.
func idOf(texts ...string) id {
	b := make([]byte, 0, 256)
	for _, t := range texts {
		b = binary.AppendUvarint(b, uint64(len(t)))
		b = append(b, t...)
	}
	sum := sha256.Sum256(b)
	return id(sum[:len(id{})])
}

// MarshalText implements encoding.TextMarshaler.
func (i id) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, i[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (i *id) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(i) {
		return fmt.Errorf("%q is not %d bytes in hexadecimal", text, len(i))
	}
	*i = id(b)
	return nil
}

const (
	// maxDiagnosisName is the longest name that fits in a label value.
	maxDiagnosisName = 63
	maxHint          = 20
	// nameDigits is the length of the hash in a name: 64 bits distinguish the Diagnoses of a
	// trigger.
	nameDigits = 16
)

// diagnosisName returns the name of the Diagnosis for a subject's episode: a readable prefix, as
// far as there is room, and a hash. hint names the node or object; it must follow from the subject.
func diagnosisName(trigger string, source Source, subject, hint string, episode time.Time) string {
	of := idOf(trigger, string(source), subject, episode.UTC().Format(time.RFC3339Nano))
	hash := hex.EncodeToString(of[:])[:nameDigits]
	hint = nameOf(hint, maxHint)
	parts := []string{nameOf(trigger, maxDiagnosisName-nameDigits-len(hint)-2), hint, hash}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "-")
}

// nameOf converts a text to a part of a DNS label of at most limit bytes.
func nameOf(text string, limit int) string {
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		switch {
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		default:
			if b.Len() == 0 {
				continue
			}
			c = '-'
		}
		if b.Len() == limit {
			break
		}
		b.WriteByte(c)
	}
	return strings.TrimRight(b.String(), "-")
}

// validName reports whether a text is a valid name of a node or pod (dots), or of a namespace or
// container. The empty text is valid.
func validName(text string, dots bool) bool {
	check := validation.IsDNS1123Label
	if dots {
		check = validation.IsDNS1123Subdomain
	}
	return text == "" || len(check(text)) == 0
}

// validParameter is the form of a parameter's name, as in the schema.
var validParameter = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_./-]{0,126}[A-Za-z0-9_])?$`)
