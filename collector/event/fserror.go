package event

// FSError: a filesystem detected an inconsistency or a failure of its own I/O.
const FSError Kind = "fserror"

// FSErrorData is the payload of [FSError].
type FSErrorData struct {
	FSType   string `json:"fsType"`
	Function string `json:"function"` // kernel function that found it
	Line     uint32 `json:"line"`
}

func (d *FSErrorData) facts(ev *Event, f *Facts) {
	f.Verdict = d.FSType
	f.add("%s line %d found it", d.Function, d.Line)
	f.mounts(ev.Device)
}

func fsErrorFields() []*Field {
	field := fieldsOf("event.", func(e *Event) *FSErrorData { return e.FSError }, FSError)
	return []*Field{
		few(field("function", TypeString, "kernel function that found the error",
			func(f *FSErrorData) Value { return text(f.Function) })),
		field("line", TypeInt, "line in the kernel source", func(f *FSErrorData) Value { return number(f.Line) }),
	}
}
