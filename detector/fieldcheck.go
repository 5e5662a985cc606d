package detector

import "github.com/kernosis/kernosis/collector/event"

func checkFields() []*Field {
	of := func(e *event.Event) *event.CheckData { return e.Check }
	return []*Field{
		{Name: "event.check", Type: String, Kinds: kinds(event.Check), few: true, Doc: "name of the check",
			read: part(of, func(d *event.CheckData) value { return text(d.Check) })},
		{Name: "event.message", Type: String, Kinds: kinds(event.Check), Doc: "what the check says to its status",
			read: part(of, func(d *event.CheckData) value { return text(d.Message) })},
		{Name: "event.status", Type: String, Kinds: kinds(event.Check, event.DiskIO), few: true,
			Doc: "check: ok, problem, unknown; diskio: blk_status name where the kernel has one: IOERR, MEDIUM, TIMEOUT …",
			read: func(e *event.Event) value {
				switch {
				case e.Check != nil:
					return text(e.Check.Status)
				case e.DiskIO != nil:
					return text(e.DiskIO.Status)
				}
				return value{}
			}},
	}
}
