package event

const (
	// MountReadOnly: a filesystem mounted for writing refuses writes (after an error, not an
	// administrator's remount). A level signal that MountWritable of the same device ends.
	MountReadOnly Kind = "mount.readonly"
	// MountWritable: a filesystem reported by MountReadOnly accepts writes again or is unmounted.
	MountWritable Kind = "mount.writable"
)

// MountData is the payload of [MountReadOnly] and [MountWritable].
type MountData struct {
	FSType string `json:"fsType"`
	Path   string `json:"path"`   // first mount point
	Reason string `json:"reason"` // how it was seen: superblock-ro, emergency-ro, shutdown, error-policy; writable: remounted, unmounted
}

func (d *MountData) facts(_ *Event, f *Facts) {
	f.Verdict = d.Reason
	f.add("%s at %s, detected by %s", d.FSType, d.Path, d.Reason)
}

func mountFields() []*Field {
	field := fieldsOf("event.", func(e *Event) *MountData { return e.Mount }, MountReadOnly, MountWritable)
	return []*Field{
		field("path", TypeString, "first mount point", func(m *MountData) Value { return text(m.Path) }),
		few(field("roReason", TypeString, "superblock-ro, emergency-ro, shutdown, error-policy; remounted, unmounted",
			func(m *MountData) Value { return text(m.Reason) })),
	}
}
