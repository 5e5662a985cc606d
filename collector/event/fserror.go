package event

// FSError: a filesystem detected an inconsistency or a failure of its own I/O.
const FSError Kind = "fserror"

func fsError() Family {
	return Family{Stem: "fserror", Faults: "filesystem errors", Kinds: []Kind{FSError}, fields: fsErrorFields}
}

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
	of := func(e *Event) *FSErrorData { return e.FSError }
	return []*Field{
		{Name: "event.function", Type: TypeString, Kinds: []Kind{FSError}, Few: true, Doc: "kernel function that found the error",
			Read: part(of, func(f *FSErrorData) Value { return text(f.Function) })},
		{Name: "event.line", Type: TypeInt, Kinds: []Kind{FSError}, Doc: "line in the kernel source",
			Read: part(of, func(f *FSErrorData) Value { return number(f.Line) })},
	}
}
