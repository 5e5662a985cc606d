package journald

import (
	"bytes"
	"strconv"
)

// Entry is one entry of a journal: of its fields those that are read. Its
// slices are valid until the next entry is decoded.
type Entry struct {
	// Cursor is where it is, as journalctl takes it.
	Cursor []byte
	// Realtime and Monotonic are when journald received it, in µs.
	Realtime, Monotonic uint64
	// BootID is of the boot that Monotonic counts from.
	BootID []byte
	// Message is the text, which may have several lines; MessageSize is how long it
	// was before it was cut.
	Message     []byte
	MessageSize uint64
	// Priority is "0" to "7", Facility the syslog facility as a number.
	Priority, Facility []byte
	// Identifier is what the writer calls itself; Comm what it is called by the
	// kernel. Unit is its systemd unit, Transport how the message came.
	Identifier, Comm, Unit, Transport []byte
	// MessageID is of journald's own messages, Dropped how many messages it says
	// it has dropped.
	MessageID, Dropped []byte
	// Stamp is when the kernel printed the message, by its own clock, in µs; 0: it is not
	// the kernel's.
	Stamp uint64
}

// fieldNames are what is asked for; those with two underscores and _BOOT_ID come
// anyway.
func fieldNames() []string {
	return []string{
		"MESSAGE", "PRIORITY", "SYSLOG_FACILITY", "SYSLOG_IDENTIFIER", "_COMM", "_SYSTEMD_UNIT", "_TRANSPORT",
		"MESSAGE_ID", "N_DROPPED", "_SOURCE_MONOTONIC_TIMESTAMP",
	}
}

// field returns where the value of a field goes; nil: nowhere.
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

// reset empties the entry, and keeps its memory.
func (e *Entry) reset() {
	for _, b := range []*[]byte{
		&e.Cursor, &e.BootID, &e.Message, &e.Priority, &e.Facility, &e.Identifier, &e.Comm, &e.Unit, &e.Transport, &e.MessageID, &e.Dropped,
	} {
		*b = (*b)[:0]
	}
	e.Realtime, e.Monotonic, e.MessageSize, e.Stamp = 0, 0, 0, 0
}

// Seq returns the entry's sequence number, which its cursor holds; 0: it does not.
func (e *Entry) Seq() uint64 {
	n, err := strconv.ParseUint(string(cursorPart(e.Cursor, 'i')), 16, 64)
	if err != nil {
		return 0
	}
	return n
}

// cursorPart returns the value behind "<name>=" in a cursor, which is a list of
// those with semicolons between them.
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

// sameEntry reports whether two cursors are of one entry. One that is copied to
// another file, as from /run to /var, may get another sequence number there;
// boot, times and hash stay.
func sameEntry(a, b []byte) bool {
	for _, name := range []byte("bmtx") {
		x, y := cursorPart(a, name), cursorPart(b, name)
		if len(x) == 0 || !bytes.Equal(x, y) {
			return false
		}
	}
	return true
}
