package start

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"

	"github.com/kernosis/kernosis/diagnose/trigger"
)

const (
	// maxState is the largest compressed state in bytes: a ConfigMap may have 1 MiB.
	maxState = 900 << 10
	// maxUnread is the largest unreadable state in bytes that is kept. It leaves room for the next
	// state.
	maxUnread = maxState / 2
	// maxStateText is the largest uncompressed state in bytes.
	maxStateText = 16 << 20
)

// encodeState encodes a state in at most limit bytes. It drops the oldest entries until they fit,
// and returns how many it dropped.
func encodeState(s *trigger.State, limit int) (data []byte, forgotten int, err error) {
	for {
		var text int
		data, text, err = compress(s)
		if err != nil || len(data) <= limit && text <= maxStateText {
			return data, forgotten, err
		}
		before := forgotten
		n := (len(s.Streams) + 1) / 2
		s.Streams, forgotten = s.Streams[n:], forgotten+n
		n = (len(s.Subjects) + 1) / 2
		s.Subjects, forgotten = s.Subjects[n:], forgotten+n
		if forgotten > before {
			continue
		}
		for i := range s.Triggers {
			t := &s.Triggers[i]
			n := (len(t.Started) + 1) / 2
			t.Started, forgotten = t.Started[n:], forgotten+n
		}
		if forgotten == before {
			return nil, forgotten, fmt.Errorf("trigger state: %d bytes for the names of %d triggers, at most %d", len(data), len(s.Triggers), limit)
		}
	}
}

// compress returns the compressed state, and the length of its text.
func compress(s *trigger.State) (data []byte, length int, err error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, 0, fmt.Errorf("trigger state: %w", err)
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		return nil, 0, fmt.Errorf("trigger state: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, 0, fmt.Errorf("trigger state: %w", err)
	}
	return b.Bytes(), len(text), nil
}

// decodeState decodes the result of encodeState.
func decodeState(data []byte) (*trigger.State, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("trigger state: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(r, maxStateText+1))
	if err != nil {
		return nil, fmt.Errorf("trigger state: %w", err)
	}
	if len(text) > maxStateText {
		return nil, fmt.Errorf("trigger state: more than %d bytes", maxStateText)
	}
	return trigger.ParseState(text)
}
