package journald

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/kernosis/kernosis/collector/logs"
)

// ParseJSON parses one entry as "journalctl -o json" writes it: an object whose values are
// strings, arrays of bytes if a value is not text, arrays of values if a field occurs several
// times, or null if a value is too long.
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
	var codes []uint16 // encoding/json would expect Base64 for []byte
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

// Line returns the entry as a single line, in the form that a Reader hands over, without BootTime.
func (e *Entry) Line() logs.Line {
	s := session{names: make(map[string]string), boot: "none"}
	s.fill(e)
	return s.line
}
