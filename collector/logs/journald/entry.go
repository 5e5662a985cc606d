package journald

import (
	"bytes"
	"strconv"

	"github.com/kernosis/kernosis/collector/logs"
)

// Entry is one entry of a journal. Its slices are valid until the next entry is decoded.
type Entry struct {
	// Cursor is the entry's place, in the form that journalctl takes.
	Cursor []byte
	// Realtime and Monotonic are when journald received the entry, in µs.
	Realtime, Monotonic uint64
	// BootID is the boot that Monotonic counts from.
	BootID []byte
	// Message is the text, maybe of several lines; MessageSize is its size before it was cut.
	Message     []byte
	MessageSize uint64
	// Priority is "0" to "7", Facility is the syslog facility as a number.
	Priority, Facility []byte
	// Identifier is the name that the writer chose, Comm its name in the kernel. Unit is its
	// systemd unit, Transport how the message reached journald.
	Identifier, Comm, Unit, Transport []byte
	// MessageID is set for journald's own messages; Dropped is how many messages it dropped.
	MessageID, Dropped []byte
	// Stamp is when the kernel printed the message, by its clock, in µs; 0 for other writers.
	Stamp uint64
}

// fieldNames returns the fields to request. Those with two underscores and _BOOT_ID always come.
func fieldNames() []string {
	return []string{
		"MESSAGE", "PRIORITY", "SYSLOG_FACILITY", "SYSLOG_IDENTIFIER", "_COMM", "_SYSTEMD_UNIT", "_TRANSPORT",
		"MESSAGE_ID", "N_DROPPED", "_SOURCE_MONOTONIC_TIMESTAMP",
	}
}

// field returns where to store the value of a field; nil if the field is not used.
func (e *Entry) field(name []byte) *[]byte {
	switch string(name) {
	case "MESSAGE":
		return &e.Message
	case "PRIORITY":
		return &e.Priority
	case "SYSLOG_FACILITY":
		return &e.Facility
	case "SYSLOG_IDENTIFIER":
		return &e.Identifier
	case "_COMM":
		return &e.Comm
	case "_SYSTEMD_UNIT":
		return &e.Unit
	case "_TRANSPORT":
		return &e.Transport
	case "MESSAGE_ID":
		return &e.MessageID
	case "N_DROPPED":
		return &e.Dropped
	case "_BOOT_ID":
		return &e.BootID
	case "__CURSOR":
		return &e.Cursor
	default:
		return nil
	}
}

// reset empties the entry but keeps its memory.
func (e *Entry) reset() {
	for _, b := range []*[]byte{
		&e.Cursor, &e.BootID, &e.Message, &e.Priority, &e.Facility, &e.Identifier, &e.Comm, &e.Unit, &e.Transport, &e.MessageID, &e.Dropped,
	} {
		*b = (*b)[:0]
	}
	e.Realtime, e.Monotonic, e.MessageSize, e.Stamp = 0, 0, 0, 0
}

// Seq returns the entry's sequence number from its cursor; 0 if the cursor has none.
func (e *Entry) Seq() uint64 {
	n, err := strconv.ParseUint(string(cursorPart(e.Cursor, 'i')), 16, 64)
	if err != nil {
		return 0
	}
	return n
}

// cursorPart returns the value of "<name>=" in a cursor, a list of these separated by semicolons.
func cursorPart(cursor []byte, name byte) []byte {
	for len(cursor) > 0 {
		var part []byte
		part, cursor, _ = bytes.Cut(cursor, []byte{';'})
		if len(part) > 2 && part[0] == name && part[1] == '=' {
			return part[2:]
		}
	}
	return nil
}

// sameEntry reports whether two cursors refer to the same entry. A copy of an entry in another file, such
// as from /run in /var, may have another sequence number; boot, times and hash are the same.
func sameEntry(a, b []byte) bool {
	for _, name := range []byte("bmtx") {
		x, y := cursorPart(a, name), cursorPart(b, name)
		if len(x) == 0 || !bytes.Equal(x, y) {
			return false
		}
	}
	return true
}

// Line returns the entry as a single line, in the form that a Reader hands over, without BootTime.
func (e *Entry) Line() logs.Line {
	s := session{names: make(map[string]string), boot: "none"}
	s.fill(e)
	return s.line
}
