package detector

import "github.com/kernosis/kernosis/collector/event"

func checkFields() []*Field {
	of := func(e *event.Event) *event.CheckData { return e.Check }
	return []*Field{
		{Name: "event.check", Type: String, Kinds: kinds(event.Check), few: true, Doc: "name of the check",
			read: part(of, func(d *event.CheckData) value { return text(d.Check) })},
		{Name: "event.message", Type: String, Kinds: kinds(event.Check), Doc: "what the check says to its status",
			read: part(of, func(d *event.CheckData) value { return text(d.Message) })},
		{Name: "event.status", Type: String, Kinds: kinds(event.Check, event.DiskIO, event.Probe, event.ProbeRecovered), few: true,
			Doc: "check: ok, problem, unknown; diskio: blk_status name where the kernel has one: IOERR, MEDIUM, TIMEOUT …; probe: what was answered: 503, NOT_SERVING, exit 1",
			read: func(e *event.Event) value {
				switch {
				case e.Check != nil:
					return text(e.Check.Status)
				case e.DiskIO != nil:
					return text(e.DiskIO.Status)
				case e.Probe != nil:
					return text(e.Probe.Status)
				}
				return value{}
			}},
	}
}
