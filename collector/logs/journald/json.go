package journald

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/kernosis/kernosis/collector/logs"
)

// ParseJSON reads one entry as "journalctl -o json" writes it: an object of texts, of arrays
// of bytes where a value is no text, of lists where a field stands several times, and of null
// where a value is too long.
func ParseJSON(line []byte, e *Entry) error {
	e.reset()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value, err := jsonValue(fields[name])
		if err != nil {
			return fmt.Errorf("field %.100q: %w", name, ErrFormat)
		}
		if to := e.field([]byte(name)); to != nil {
			*to = value
		} else if err := e.number([]byte(name), value); err != nil {
			return err
		}
	}
	if e.Realtime == 0 {
		return fmt.Errorf("no __REALTIME_TIMESTAMP: %w", ErrFormat)
	}
	e.MessageSize = uint64(len(e.Message))
	return nil
}

func jsonValue(raw json.RawMessage) ([]byte, error) {
	var text string
	if err := json.Unmarshal(raw, &text); err == nil { // null too
		return []byte(text), nil
	}
	var codes []uint16 // encoding/json takes []byte for Base64
	if err := json.Unmarshal(raw, &codes); err == nil {
		value := make([]byte, len(codes))
		for i, c := range codes {
			value[i] = byte(c)
		}
		return value, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil || len(list) == 0 {
		return nil, ErrFormat
	}
	return jsonValue(list[0])
}

// Line returns the entry as a line of its own, in the form that a Reader hands over; its
// BootTime is not known.
func (e *Entry) Line() logs.Line {
	s := session{names: make(map[string]string), boot: "none"}
	s.fill(e)
	return s.line
}
